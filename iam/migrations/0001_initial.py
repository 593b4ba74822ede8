"""Tenants, principals, operators, keys, policies, decisions."""

import django.contrib.auth.models
import django.contrib.auth.validators
import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        # A state of a tenant's policies is named by a number that no other state ever had: processes cache by it.
        migrations.RunSQL("CREATE SEQUENCE iam_policy_revision", "DROP SEQUENCE iam_policy_revision"),
        migrations.CreateModel(
            name='Decision',
            fields=[
                ('id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('tenant_id', models.CharField(max_length=128)),
                ('at', models.BigIntegerField()),
                ('principal_id', models.CharField(max_length=64)),
                ('principal_kind', models.CharField(max_length=16)),
                ('agent_id', models.CharField(blank=True, default='', max_length=64)),
                ('delegation_id', models.CharField(blank=True, default='', max_length=64)),
                ('key_id', models.CharField(blank=True, default='', max_length=64)),
                ('subject', models.JSONField(default=dict)),
                ('action', models.CharField(max_length=96)),
                ('resource_type', models.CharField(max_length=64)),
                ('resource_id', models.CharField(max_length=300)),
                ('attributes', models.JSONField()),
                ('context', models.JSONField()),
                ('outcome', models.CharField(max_length=8)),
                ('reason', models.CharField(max_length=32)),
                ('policies', models.JSONField(default=list)),
                ('errors', models.JSONField(default=list)),
                ('request_id', models.CharField(blank=True, default='', max_length=128)),
            ],
            options={
                'indexes': [models.Index(models.F('tenant_id'), models.OrderBy(models.F('at'), descending=True), models.OrderBy(models.F('id'), descending=True), name='decision_newest'), models.Index(fields=['tenant_id', 'request_id'], name='decision_request')],
                'constraints': [models.CheckConstraint(condition=models.Q(('outcome__in', ['allow', 'deny'])), name='decision_outcome_known')],
            },
        ),
        migrations.CreateModel(
            name='Principal',
            fields=[
                ('id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('kind', models.CharField(max_length=16)),
                ('name', models.CharField(max_length=128)),
                ('roles', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=32), default=list, size=None)),
                ('groups', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63), default=list, size=None)),
                ('status', models.CharField(default='active', max_length=16)),
                ('status_at', models.BigIntegerField(blank=True, null=True)),
                ('status_by', models.CharField(blank=True, default='', max_length=128)),
                ('status_reason', models.CharField(blank=True, default='', max_length=128)),
                ('suspended_by', models.CharField(blank=True, default='', max_length=16)),
                ('node_id', models.CharField(blank=True, default='', max_length=128)),
                ('boundary', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=96), blank=True, default=list, size=None)),
                ('created_at', models.BigIntegerField()),
                ('created_by', models.CharField(max_length=128)),
                ('version', models.BigIntegerField(default=1)),
                ('sponsor', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='agents', to='iam.principal')),
            ],
        ),
        migrations.CreateModel(
            name='Operator',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('password', models.CharField(max_length=128, verbose_name='password')),
                ('last_login', models.DateTimeField(blank=True, null=True, verbose_name='last login')),
                ('is_superuser', models.BooleanField(default=False, help_text='Designates that this user has all permissions without explicitly assigning them.', verbose_name='superuser status')),
                ('username', models.CharField(error_messages={'unique': 'A user with that username already exists.'}, help_text='Required. 150 characters or fewer. Letters, digits and @/./+/-/_ only.', max_length=150, unique=True, validators=[django.contrib.auth.validators.UnicodeUsernameValidator()], verbose_name='username')),
                ('first_name', models.CharField(blank=True, max_length=150, verbose_name='first name')),
                ('last_name', models.CharField(blank=True, max_length=150, verbose_name='last name')),
                ('email', models.EmailField(blank=True, max_length=254, verbose_name='email address')),
                ('is_staff', models.BooleanField(default=False, help_text='Designates whether the user can log into this admin site.', verbose_name='staff status')),
                ('is_active', models.BooleanField(default=True, help_text='Designates whether this user should be treated as active. Unselect this instead of deleting accounts.', verbose_name='active')),
                ('date_joined', models.DateTimeField(default=django.utils.timezone.now, verbose_name='date joined')),
                ('groups', models.ManyToManyField(blank=True, help_text='The groups this user belongs to. A user will get all permissions granted to each of their groups.', related_name='user_set', related_query_name='user', to='auth.group', verbose_name='groups')),
                ('user_permissions', models.ManyToManyField(blank=True, help_text='Specific permissions for this user.', related_name='user_set', related_query_name='user', to='auth.permission', verbose_name='user permissions')),
                ('principal', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='operator', to='iam.principal')),
            ],
            options={
                'verbose_name': 'operator',
                'verbose_name_plural': 'users',
                'abstract': False,
            },
            managers=[
                ('objects', django.contrib.auth.models.UserManager()),
            ],
        ),
        migrations.CreateModel(
            name='Tenant',
            fields=[
                ('id', models.CharField(max_length=128, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=128)),
                ('status', models.CharField(default='active', max_length=16)),
                ('status_at', models.BigIntegerField(blank=True, null=True)),
                ('status_by', models.CharField(blank=True, default='', max_length=128)),
                ('status_reason', models.CharField(blank=True, default='', max_length=128)),
                ('policy_revision', models.BigIntegerField(default=0)),
                ('created_at', models.BigIntegerField()),
                ('created_by', models.CharField(max_length=128)),
                ('version', models.BigIntegerField(default=1)),
            ],
            options={
                'indexes': [models.Index(models.OrderBy(models.F('created_at'), descending=True), models.OrderBy(models.F('id'), descending=True), name='tenant_newest')],
                'constraints': [models.CheckConstraint(condition=models.Q(('status__in', ['active', 'suspended'])), name='tenant_status_known')],
            },
        ),
        migrations.AddField(
            model_name='principal',
            name='tenant',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='principals', to='iam.tenant'),
        ),
        migrations.CreateModel(
            name='Policy',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=63)),
                ('version', models.BigIntegerField()),
                ('deleted_at', models.BigIntegerField(blank=True, null=True)),
                ('created_at', models.BigIntegerField()),
                ('created_by', models.CharField(max_length=128)),
                ('updated_at', models.BigIntegerField()),
                ('updated_by', models.CharField(max_length=128)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='policies', to='iam.tenant')),
            ],
            options={
                'verbose_name_plural': 'policies',
            },
        ),
        migrations.CreateModel(
            name='ApiKey',
            fields=[
                ('id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('name', models.CharField(blank=True, default='', max_length=128)),
                ('prefix', models.CharField(max_length=12)),
                ('token_hash', models.CharField(max_length=64)),
                ('scopes', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=96), size=None)),
                ('requests_per_minute', models.IntegerField(blank=True, null=True)),
                ('status', models.CharField(default='active', max_length=16)),
                ('created_at', models.BigIntegerField()),
                ('created_by', models.CharField(max_length=128)),
                ('expires_at', models.BigIntegerField()),
                ('last_used_at', models.BigIntegerField(blank=True, null=True)),
                ('revoked_at', models.BigIntegerField(blank=True, null=True)),
                ('revoked_by', models.CharField(blank=True, default='', max_length=128)),
                ('revoke_reason', models.CharField(blank=True, default='', max_length=128)),
                ('replaced_by', models.CharField(blank=True, default='', max_length=64)),
                ('principal', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='keys', to='iam.principal')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='keys', to='iam.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='PolicyVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('version', models.BigIntegerField()),
                ('text', models.TextField()),
                ('statements', models.JSONField()),
                ('created_at', models.BigIntegerField()),
                ('created_by', models.CharField(max_length=128)),
                ('policy', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='versions', to='iam.policy')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('policy', 'version'), name='policy_version_unique')],
            },
        ),
        migrations.AddIndex(
            model_name='principal',
            index=models.Index(models.F('tenant'), models.OrderBy(models.F('created_at'), descending=True), models.OrderBy(models.F('id'), descending=True), name='principal_newest'),
        ),
        migrations.AddIndex(
            model_name='principal',
            index=django.contrib.postgres.indexes.GinIndex(fields=['roles'], name='principal_roles'),
        ),
        migrations.AddIndex(
            model_name='principal',
            index=django.contrib.postgres.indexes.GinIndex(fields=['groups'], name='principal_groups'),
        ),
        migrations.AddConstraint(
            model_name='principal',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['user', 'service', 'agent'])), name='principal_kind_known'),
        ),
        migrations.AddConstraint(
            model_name='principal',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['active', 'suspended'])), name='principal_status_known'),
        ),
        migrations.AddConstraint(
            model_name='principal',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('kind', 'agent'), ('sponsor__isnull', False)), models.Q(models.Q(('kind', 'agent'), _negated=True), ('sponsor__isnull', True)), _connector='OR'), name='principal_agent_has_sponsor'),
        ),
        migrations.AddConstraint(
            model_name='principal',
            constraint=models.CheckConstraint(condition=models.Q(('node_id', ''), models.Q(('kind', 'service'), ('tenant_id', 'platform')), _connector='OR'), name='principal_node_is_service'),
        ),
        migrations.AddConstraint(
            model_name='principal',
            constraint=models.UniqueConstraint(condition=models.Q(models.Q(('node_id', ''), _negated=True), ('status', 'active')), fields=('node_id',), name='principal_one_per_node'),
        ),
        migrations.AddConstraint(
            model_name='principal',
            constraint=models.CheckConstraint(condition=models.Q(('tenant_id', 'platform'), models.Q(('roles__contains', ['fleet-admin']), _negated=True), _connector='OR'), name='principal_fleet_admin_platform_only'),
        ),
        migrations.AddConstraint(
            model_name='policy',
            constraint=models.UniqueConstraint(fields=('tenant', 'name'), name='policy_name_unique'),
        ),
        migrations.AddIndex(
            model_name='apikey',
            index=models.Index(models.F('tenant'), models.OrderBy(models.F('created_at'), descending=True), models.OrderBy(models.F('id'), descending=True), name='api_key_newest'),
        ),
        migrations.AddIndex(
            model_name='apikey',
            index=models.Index(models.F('principal'), models.OrderBy(models.F('created_at'), descending=True), models.OrderBy(models.F('id'), descending=True), name='api_key_of_principal'),
        ),
        migrations.AddConstraint(
            model_name='apikey',
            constraint=models.UniqueConstraint(fields=('prefix',), name='api_key_prefix_unique'),
        ),
        migrations.AddConstraint(
            model_name='apikey',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('revoked_at__isnull', True), ('status', 'active')), models.Q(('revoked_at__isnull', False), ('status', 'revoked')), _connector='OR'), name='api_key_revoked_at'),
        ),
        migrations.AddConstraint(
            model_name='apikey',
            constraint=models.CheckConstraint(condition=models.Q(('scopes__len__gte', 1)), name='api_key_has_scopes'),
        ),
    ]
