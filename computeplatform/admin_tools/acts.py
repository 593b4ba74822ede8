"""What operators do on these pages: asked first, decided by IAM, done by the API's own operations (OPS-1, OPS-2).

The kernel knows neither: an act brings a function that asks IAM and then calls the operation, as a method's view does.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.core.validators import RegexValidator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.decorators import action
from unfold.enums import ActionVariant
from unfold.widgets import UnfoldAdminTextInputWidget

from computeplatform.admin_tools.pages import ReadOnlyAdmin, name_rows
from computeplatform.api.calls import CallContext
from computeplatform.api.envelope import as_refusal, request_id_of
from computeplatform.clock import compute_now
from computeplatform.errors import Refusal

# Objects of one act: each is decided and done in transactions of its own, while the operator waits.
AT_ONCE = 100
F = TypeVar("F", bound=Callable[..., HttpResponse])
CONFIRMED = "confirmed"


@dataclass(frozen=True)
class Operating:
    """Who acts, why, and in what circumstances; ``context.time`` is when this object's turn came."""

    operator_id: int
    reason: str
    context: CallContext


@dataclass(frozen=True, kw_only=True)
class Act:
    """One thing that operators can do to the objects of a page.

    ``name`` is the action's name on its page, ``title`` its button. ``foresee`` says in words what would happen to one
    object now. ``perform`` asks IAM, does it and says in a word what the object is now, or raises a Refusal.
    """

    name: str
    title: str
    question: str
    foresee: Callable[[Any], str]
    perform: Callable[[Any, Operating], str]


def offered(description: str, *, address: str = "", icon: str = "", danger: bool = False) -> Callable[[F], F]:
    """Offer a page's method to those who may act: as a button with an address of its own, or in the list's menu."""
    variant = ActionVariant.DANGER if danger else ActionVariant.DEFAULT
    given = {"url_path": address, "icon": icon} if address else {}
    return action(description=description, permissions=["operate"], variant=variant, **given)  # type: ignore[no-any-return]


class ReasonForm(forms.Form):
    """Why: it goes into the audit log, and nobody but its readers sees it."""

    reason = forms.CharField(
        max_length=128,
        validators=[RegexValidator(r"^[^\x00-\x1f\x7f]*\Z", "One line of text, please.")],
        widget=UnfoldAdminTextInputWidget,
        help_text="Goes into the audit log, with your name.",
    )


class OperatedAdmin(ReadOnlyAdmin):
    """A page on which operators can act. Who has no principal of the platform may look, but not act."""

    # What identifies an object on the page that asks.
    act_columns: Sequence[Callable[[Any], Any]] = ()

    def has_operate_permission(self, request: HttpRequest, object_id: object = None) -> bool:
        """Whether the acts are offered at all; IAM decides on each of them."""
        has_principal = getattr(request.user, "principal_id", None) is not None
        return has_principal and self.has_view_permission(request)

    def act_on_one(self, request: HttpRequest, act: Act, object_id: str) -> HttpResponse:
        """The act on the object of a page; the address is the act's own."""
        back = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[object_id])
        return self._act(request, act, [unquote(object_id)], back=back)

    def act_on_selected(self, request: HttpRequest, act: Act) -> HttpResponse:
        """The act on the rows that were selected in the list: those that were named, whatever has become of them."""
        return self._act(request, act, request.POST.getlist(ACTION_CHECKBOX_NAME), back=request.get_full_path())

    def _act(self, request: HttpRequest, act: Act, ids: Sequence[str], *, back: str) -> HttpResponse:
        if not self.has_operate_permission(request):
            raise PermissionDenied
        if len(ids) > AT_ONCE:
            messages.error(request, f"Choose at most {AT_ONCE} at once.")
            return HttpResponseRedirect(back)
        rows = list(self.model._default_manager.filter(pk__in=ids).order_by("pk"))  # noqa: SLF001 - Django's own name
        if not rows:
            raise Http404
        confirmed = request.method == "POST" and CONFIRMED in request.POST
        form = ReasonForm(request.POST if confirmed else None)
        if confirmed and form.is_valid():
            self._perform(request, act, rows, form.cleaned_data["reason"])
            return HttpResponseRedirect(back)
        return self._ask(request, act, rows, form, back)

    def _ask(self, request: HttpRequest, act: Act, rows: list[Any], form: ReasonForm, back: str) -> HttpResponse:
        name_rows(rows, self.act_columns)
        columns = [*self.act_columns, act.foresee]
        headers = [getattr(shown, "short_description", "what will happen") for shown in columns]
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": act.question,
            "act": act,
            "form": form,
            "back": back,
            "confirmed": CONFIRMED,
            "checkbox": ACTION_CHECKBOX_NAME,
            "ids": [row.pk for row in rows],
            "table": {"headers": headers, "rows": [[shown(row) for shown in columns] for row in rows]},
        }
        return TemplateResponse(request, "computeplatform/admin/act.html", context)

    def _perform(self, request: HttpRequest, act: Act, rows: list[Any], reason: str) -> None:
        outcomes: dict[tuple[int, str], list[str]] = defaultdict(list)
        for row in rows:
            outcomes[_attempt(request, act, row, reason)].append(str(row))
        for (level, words), names in outcomes.items():
            messages.add_message(request, level, f"{', '.join(names)}: {words}")


def _attempt(request: HttpRequest, act: Act, row: Any, reason: str) -> tuple[int, str]:
    """Do it to one object. Whatever goes wrong is told of this object, and the others have their turn."""
    try:
        context = CallContext(compute_now(), request.META.get("REMOTE_ADDR"), request_id_of(request))
        return messages.SUCCESS, act.perform(row, Operating(int(request.user.pk or 0), reason, context))
    except Exception as error:  # noqa: BLE001 - mapped as the API maps it: logged if it was not expected
        return messages.ERROR, _in_words(as_refusal(error), request_id_of(request))


def _in_words(refusal: Refusal, request_id: str) -> str:
    """What to tell of a refusal: advice that is its own, and the request by which the audit log or the log has more."""
    text = f"{refusal.message.removesuffix('.')}."
    if refusal.fix:
        text += f" {refusal.fix}"
    if refusal.code in ("ACCESS_DENIED", "INTERNAL_ERROR"):
        text += f" The request was {request_id}."
    return text
