-- The step that followed a split when it was entered, whatever a reload makes of the pipeline:
-- '' where nothing did, NULL in a scope that is older than this.

ALTER TABLE scopes ADD COLUMN join_step @key@;
ALTER TABLE scopes ADD COLUMN join_plugin @key@ NOT NULL DEFAULT '';
ALTER TABLE scopes ADD COLUMN join_command @key@ NOT NULL DEFAULT '';
