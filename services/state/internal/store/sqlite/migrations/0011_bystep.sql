-- A checkpoint is found by its step, which its id tells.

DROP INDEX checkpoints_id;
