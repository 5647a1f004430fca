-- Convergence: what owners allow, what plans may do to the loss, what decisions were made of.
ALTER TABLE jobs ADD COLUMN epsilon REAL NOT NULL DEFAULT 0.01;
ALTER TABLE jobs ADD COLUMN min_progress REAL NOT NULL DEFAULT 0.5;
ALTER TABLE jobs ADD COLUMN loss_floor REAL;
ALTER TABLE iterations ADD COLUMN change_sq_local REAL;
ALTER TABLE iterations ADD COLUMN learning_rate REAL;
ALTER TABLE plans ADD COLUMN max_loss REAL;         -- the fuse; NULL: not watched
ALTER TABLE plans ADD COLUMN max_grad_sq REAL;
ALTER TABLE decisions ADD COLUMN inputs TEXT NOT NULL DEFAULT ''; -- of the tuner; '': not kept
ALTER TABLE decisions ADD COLUMN solve TEXT NOT NULL DEFAULT ''; -- deft.solve/1; '': none
UPDATE incarnations SET tuner = '{"state":' || tuner || '}' WHERE tuner <> '';
