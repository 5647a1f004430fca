-- Keys come from agents and ranks, never from clients' clocks. Times named received_ns and the like
-- are the controller's own clock.
CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    user TEXT NOT NULL,
    state TEXT NOT NULL,            -- of the newest incarnation
    mode TEXT NOT NULL,
    max_merge INTEGER NOT NULL,
    max_delay INTEGER NOT NULL,
    summary TEXT NOT NULL,          -- the job object of the API, as it was last known
    created_ns INTEGER NOT NULL,
    updated_ns INTEGER NOT NULL
) STRICT;
CREATE INDEX jobs_created ON jobs (created_ns);

CREATE TABLE incarnations (
    id INTEGER PRIMARY KEY,
    job TEXT NOT NULL REFERENCES jobs (id),
    key TEXT NOT NULL,
    state TEXT NOT NULL,            -- running, finished, failed, lost
    n_ranks INTEGER NOT NULL,
    table_hash TEXT NOT NULL,
    registration TEXT NOT NULL,     -- the first agent's registration
    tuner TEXT NOT NULL,            -- what the tuner must know after a restart; '' at first
    profile TEXT NOT NULL,          -- the newest deft.profile/1 that was solved; '' at first
    registered_ns INTEGER NOT NULL,
    updated_ns INTEGER NOT NULL,
    UNIQUE (job, key)
) STRICT;
CREATE INDEX incarnations_state ON incarnations (state);

CREATE TABLE agents (
    incarnation INTEGER NOT NULL REFERENCES incarnations (id),
    agent TEXT NOT NULL,
    committed_seq INTEGER NOT NULL,
    registered_ns INTEGER NOT NULL,
    PRIMARY KEY (incarnation, agent)
) STRICT, WITHOUT ROWID;

CREATE TABLE iterations (
    incarnation INTEGER NOT NULL,
    iteration INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    plan_seq INTEGER NOT NULL,
    forward_ns INTEGER NOT NULL,
    backward_ns INTEGER NOT NULL,
    exposed_ns INTEGER NOT NULL,
    optimizer_ns INTEGER NOT NULL,
    runtime_ns INTEGER NOT NULL,
    step_ns INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    loss REAL,
    grad_sq_local REAL,
    grad_sq_mean REAL,
    updates INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    merge INTEGER NOT NULL,
    flags INTEGER NOT NULL,
    PRIMARY KEY (incarnation, iteration, rank)
) STRICT, WITHOUT ROWID;

-- All-reduces of one size on one link, per report.
CREATE TABLE ops (
    incarnation INTEGER NOT NULL,
    agent TEXT NOT NULL,
    seq INTEGER NOT NULL,
    position INTEGER NOT NULL,      -- within the report
    rank INTEGER NOT NULL,
    link INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    count INTEGER NOT NULL,
    min_ns INTEGER NOT NULL,
    median_ns INTEGER NOT NULL,
    max_ns INTEGER NOT NULL,
    PRIMARY KEY (incarnation, agent, seq, position)
) STRICT, WITHOUT ROWID;

-- The newest per rank: offsets_ns are 8-byte little-endian integers, one per tensor.
CREATE TABLE readiness (
    incarnation INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    iteration INTEGER NOT NULL,
    offsets_ns BLOB NOT NULL,
    PRIMARY KEY (incarnation, rank)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    incarnation INTEGER NOT NULL,
    agent TEXT NOT NULL,
    seq INTEGER NOT NULL,
    position INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    kind TEXT NOT NULL,
    plan_seq INTEGER NOT NULL,
    iteration INTEGER NOT NULL,
    count INTEGER NOT NULL,
    text TEXT NOT NULL,
    received_ns INTEGER NOT NULL,
    PRIMARY KEY (incarnation, agent, seq, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE plans (
    id INTEGER PRIMARY KEY,
    incarnation INTEGER NOT NULL REFERENCES incarnations (id),
    seq INTEGER NOT NULL,
    hash TEXT NOT NULL,
    plan TEXT NOT NULL,             -- deft.plan/1
    solution TEXT NOT NULL,         -- deft.solution/1; '' for a plan that was not solved for
    created_ns INTEGER NOT NULL,
    UNIQUE (incarnation, seq)
) STRICT;

CREATE TABLE decisions (
    id INTEGER PRIMARY KEY,
    incarnation INTEGER NOT NULL REFERENCES incarnations (id),
    at_ns INTEGER NOT NULL,
    kind TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    plan_seq INTEGER NOT NULL,
    exact_step_ns INTEGER NOT NULL,
    before_step_ns INTEGER NOT NULL,
    predicted_step_ns INTEGER NOT NULL,
    measured_step_ns INTEGER NOT NULL,
    reason TEXT NOT NULL
) STRICT;
CREATE INDEX decisions_incarnation ON decisions (incarnation, id);
