-- A run that has ended has ended: nobody is to tell of it.

UPDATE runs SET settled = 1, executor_id = '' WHERE NOT settled AND status NOT IN ('queued', 'running');
