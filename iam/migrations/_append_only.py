"""What makes the audit log append-only in the database itself (IAM-7, docs/adr/0018). SQL for migrations 0003, 0004."""

# One statement for all rows of an INSERT, and it takes no lock but those on the rows that it writes itself.
QUEUE_INSERTED = """
CREATE FUNCTION iam_decision_queue() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO iam_unsealeddecision (decision_id, tenant_id, at, digest)
    SELECT id, tenant_id, at, digest FROM inserted;
    RETURN NULL;
END $$;

CREATE TRIGGER iam_decision_queue AFTER INSERT ON iam_decision
    REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION iam_decision_queue();
"""
QUEUE_NOTHING = """
DROP TRIGGER iam_decision_queue ON iam_decision;
DROP FUNCTION iam_decision_queue();
"""

# The trigger stands since the migration before, so an entry is either visible here or queued by it. Nobody seals
# meanwhile (the sealer's lock), and what was sealed already, if this is repeated, is not queued again. Entries of the
# release before have no digest yet.
QUEUE_EXISTING = """
SELECT pg_advisory_xact_lock(1364846328);
INSERT INTO iam_unsealeddecision (decision_id, tenant_id, at, digest)
SELECT d.id, d.tenant_id, d.at, d.digest FROM iam_decision AS d
LEFT JOIN (
    SELECT e ->> 0 AS id FROM iam_decisionbatch, jsonb_array_elements(entries) AS e
) AS sealed ON sealed.id = d.id
WHERE sealed.id IS NULL ON CONFLICT DO NOTHING;
"""

PROTECT = """
CREATE FUNCTION iam_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: the audit log is append-only', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'audit_append_only';
END $$;

-- Entries leave only as the pruning of one exported batch, which the transaction names.
CREATE FUNCTION iam_decision_pruned() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT tenant_id, id FROM removed
        EXCEPT
        SELECT b.tenant_id, e ->> 0 FROM iam_decisionbatch AS b, jsonb_array_elements(b.entries) AS e
        WHERE b.id = nullif(current_setting('compute.pruned_batch', true), '')::bigint
            AND b.exported_to <> '' AND b.pruned_at IS NULL
    ) THEN
        RAISE EXCEPTION 'DELETE of iam_decision is refused: only entries of an exported batch are pruned'
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'audit_append_only';
    END IF;
    RETURN NULL;
END $$;

-- A batch is exported once, and pruned once and completely.
CREATE FUNCTION iam_decisionbatch_pruned() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    may_change CONSTANT text[] := ARRAY['exported_to', 'export_hash', 'pruned_at'];
BEGIN
    IF to_jsonb(NEW) - may_change <> to_jsonb(OLD) - may_change
        OR OLD.pruned_at IS NOT NULL
        OR (OLD.exported_to <> '' AND (NEW.exported_to, NEW.export_hash) <> (OLD.exported_to, OLD.export_hash))
        OR (NEW.pruned_at IS NOT NULL AND EXISTS (
            SELECT FROM iam_decision WHERE id IN (SELECT e ->> 0 FROM jsonb_array_elements(NEW.entries) AS e)
        ))
    THEN
        RAISE EXCEPTION 'UPDATE of iam_decisionbatch is refused: a batch is exported and pruned, once'
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'audit_append_only';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER iam_decision_update BEFORE UPDATE ON iam_decision
    FOR EACH ROW EXECUTE FUNCTION iam_append_only();
CREATE TRIGGER iam_decision_delete AFTER DELETE ON iam_decision
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION iam_decision_pruned();
CREATE TRIGGER iam_decision_truncate BEFORE TRUNCATE ON iam_decision
    FOR EACH STATEMENT EXECUTE FUNCTION iam_append_only();

CREATE TRIGGER iam_decisionbatch_update BEFORE UPDATE ON iam_decisionbatch
    FOR EACH ROW EXECUTE FUNCTION iam_decisionbatch_pruned();
CREATE TRIGGER iam_decisionbatch_delete BEFORE DELETE ON iam_decisionbatch
    FOR EACH ROW EXECUTE FUNCTION iam_append_only();
CREATE TRIGGER iam_decisionbatch_truncate BEFORE TRUNCATE ON iam_decisionbatch
    FOR EACH STATEMENT EXECUTE FUNCTION iam_append_only();

-- Rows of the queue leave when they are sealed; until then what they say stands.
CREATE TRIGGER iam_unsealeddecision_update BEFORE UPDATE ON iam_unsealeddecision
    FOR EACH ROW EXECUTE FUNCTION iam_append_only();
CREATE TRIGGER iam_unsealeddecision_truncate BEFORE TRUNCATE ON iam_unsealeddecision
    FOR EACH STATEMENT EXECUTE FUNCTION iam_append_only();
"""
UNPROTECT = """
DROP TRIGGER iam_unsealeddecision_truncate ON iam_unsealeddecision;
DROP TRIGGER iam_unsealeddecision_update ON iam_unsealeddecision;
DROP TRIGGER iam_decisionbatch_truncate ON iam_decisionbatch;
DROP TRIGGER iam_decisionbatch_delete ON iam_decisionbatch;
DROP TRIGGER iam_decisionbatch_update ON iam_decisionbatch;
DROP TRIGGER iam_decision_truncate ON iam_decision;
DROP TRIGGER iam_decision_delete ON iam_decision;
DROP TRIGGER iam_decision_update ON iam_decision;
DROP FUNCTION iam_decisionbatch_pruned();
DROP FUNCTION iam_decision_pruned();
DROP FUNCTION iam_append_only();
"""
