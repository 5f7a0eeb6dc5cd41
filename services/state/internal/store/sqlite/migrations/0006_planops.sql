-- The writes to the custom state that have led to the plan of the step in flight.

ALTER TABLE plans ADD COLUMN ops TEXT NOT NULL DEFAULT '';
