-- What an operator holds of a job, and where plans of earlier starts are found.
ALTER TABLE jobs ADD COLUMN frozen INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN pin TEXT NOT NULL DEFAULT ''; -- id of one of its plans; '': none
CREATE INDEX incarnations_table ON incarnations (table_hash, n_ranks);
