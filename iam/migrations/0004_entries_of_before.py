"""What takes its time on a long audit log, while the release before goes on writing it: nothing here keeps it waiting."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

from iam.migrations import _append_only

PATIENT = "SET statement_timeout = 0; SET lock_timeout = 0"
AS_BEFORE = "RESET statement_timeout; RESET lock_timeout"
# An index that was being made when somebody stopped this: it can be repeated.
LEFT_OVER = "DROP INDEX CONCURRENTLY IF EXISTS {}"


def queue_existing(_apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(_append_only.QUEUE_EXISTING)


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('iam', '0003_agents_and_audit'),
    ]

    operations = [
        migrations.RunSQL(PATIENT, AS_BEFORE),
        migrations.RunPython(queue_existing, migrations.RunPython.noop, atomic=True),
        migrations.RunSQL(LEFT_OVER.format('decision_of_resource'), migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='decision',
            index=models.Index(models.F('tenant_id'), models.F('resource_id'), models.OrderBy(models.F('at'), descending=True), models.OrderBy(models.F('id'), descending=True), name='decision_of_resource'),
        ),
        migrations.RunSQL(LEFT_OVER.format('decision_of_principal'), migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='decision',
            index=models.Index(models.F('tenant_id'), models.F('principal_id'), models.OrderBy(models.F('at'), descending=True), models.OrderBy(models.F('id'), descending=True), name='decision_of_principal'),
        ),
        migrations.RunSQL(LEFT_OVER.format('decision_of_agent'), migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='decision',
            index=models.Index(models.F('tenant_id'), models.F('agent_id'), models.OrderBy(models.F('at'), descending=True), models.OrderBy(models.F('id'), descending=True), condition=models.Q(('agent_id', ''), _negated=True), name='decision_of_agent'),
        ),
        migrations.RunSQL(AS_BEFORE, PATIENT),
    ]
