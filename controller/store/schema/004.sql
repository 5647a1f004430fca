-- Who may do what, and who has done what.
CREATE TABLE tokens (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,      -- for ever, since the audit names it
    hash BLOB NOT NULL UNIQUE,      -- SHA-256 of the token's text, which nobody keeps
    role TEXT NOT NULL,             -- agent, viewer, operator
    job TEXT NOT NULL,              -- of an agent: the job, or how its jobs begin; '' otherwise
    is_prefix INTEGER NOT NULL,
    created_ns INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_ns INTEGER NOT NULL,    -- 0: never
    revoked_ns INTEGER NOT NULL,    -- 0: not
    revision INTEGER NOT NULL       -- grows with every change of the table
) STRICT;
CREATE INDEX tokens_revision ON tokens (revision);

CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    at_ns INTEGER NOT NULL,
    who TEXT NOT NULL,              -- the token's name, or the local user
    source TEXT NOT NULL,           -- address and port, or the program
    action TEXT NOT NULL,
    subject TEXT NOT NULL,          -- the job or token that it was done to
    before TEXT NOT NULL,           -- JSON; '' when there was nothing
    after TEXT NOT NULL,            -- JSON; '' when nothing is left
    reason TEXT NOT NULL
) STRICT;
CREATE INDEX audit_subject ON audit (subject, id);

CREATE INDEX jobs_state ON jobs (state);
