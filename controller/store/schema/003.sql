-- History within bounds: roll-ups, and what upkeep must know to find its work without a search.
PRAGMA application_id = 1147487828; -- "DeFT"

ALTER TABLE iterations ADD COLUMN received_ns INTEGER NOT NULL DEFAULT 0; -- 0: before schema 3
ALTER TABLE ops ADD COLUMN received_ns INTEGER NOT NULL DEFAULT 0;

-- Reports up to here are in link_totals; of the rows in ops and events the oldest, or NULL.
ALTER TABLE agents ADD COLUMN ops_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE agents ADD COLUMN ops_ns INTEGER;
ALTER TABLE agents ADD COLUMN events_ns INTEGER;
UPDATE agents SET ops_seq = committed_seq;
UPDATE agents SET ops_ns = (SELECT i.updated_ns FROM incarnations i WHERE i.id = incarnation)
    WHERE EXISTS (SELECT 1 FROM ops o
        WHERE o.incarnation = agents.incarnation AND o.agent = agents.agent);
UPDATE agents SET events_ns = (SELECT min(e.received_ns) FROM events e
    WHERE e.incarnation = agents.incarnation AND e.agent = agents.agent);
CREATE INDEX agents_ops ON agents (ops_ns) WHERE ops_ns IS NOT NULL;
CREATE INDEX agents_events ON agents (events_ns) WHERE events_ns IS NOT NULL;

-- Runs of iterations [first, last] of one plan, received in one minute (period_s 60) or hour
-- (3600); runs of one period never overlap. Within an iteration the slowest rank counts. Columns
-- that are REAL and not NULL are sums; those of losses and gradients are over ranks as well.
CREATE TABLE rollups (
    incarnation INTEGER NOT NULL,
    period_s INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    received_ns INTEGER NOT NULL,   -- where that minute or hour begins
    plan_seq INTEGER NOT NULL,
    n_iterations INTEGER NOT NULL,
    n_steps INTEGER NOT NULL,       -- iterations whose step is known
    step_ns REAL NOT NULL,
    step_min_ns INTEGER,
    step_max_ns INTEGER,
    forward_ns REAL NOT NULL,
    backward_ns REAL NOT NULL,
    exposed_ns REAL NOT NULL,
    optimizer_ns REAL NOT NULL,
    runtime_ns REAL NOT NULL,
    updates INTEGER NOT NULL,
    n_losses INTEGER NOT NULL,
    loss REAL NOT NULL,
    loss_min REAL,
    loss_max REAL,
    n_grad_sq_local INTEGER NOT NULL,
    grad_sq_local REAL NOT NULL,
    n_grad_sq_mean INTEGER NOT NULL,
    grad_sq_mean REAL NOT NULL,
    n_change_sq_local INTEGER NOT NULL,
    change_sq_local REAL NOT NULL,
    n_learning_rate INTEGER NOT NULL,
    learning_rate REAL NOT NULL,
    PRIMARY KEY (incarnation, period_s, first)
) STRICT, WITHOUT ROWID;

-- All-reduces of an incarnation by link and size, kept when their rows in ops have gone.
CREATE TABLE link_totals (
    incarnation INTEGER NOT NULL,
    link INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    count INTEGER NOT NULL,
    n_medians INTEGER NOT NULL,
    min_ns INTEGER NOT NULL,
    median_ns REAL NOT NULL,        -- sum
    max_ns INTEGER NOT NULL,
    PRIMARY KEY (incarnation, link, bytes)
) STRICT, WITHOUT ROWID;
INSERT INTO link_totals
    SELECT incarnation, link, bytes, sum(count), count(*), min(min_ns), total(median_ns),
        max(max_ns)
    FROM ops GROUP BY incarnation, link, bytes;

-- What events say that must outlive them: who has ended, and the first iteration under a plan.
CREATE TABLE ends (
    incarnation INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    PRIMARY KEY (incarnation, rank)
) STRICT, WITHOUT ROWID;
INSERT INTO ends
    SELECT incarnation, rank, max(kind = 'failed') FROM events
    WHERE kind IN ('finished', 'failed') GROUP BY incarnation, rank;
CREATE TABLE activations (
    incarnation INTEGER NOT NULL,
    plan_seq INTEGER NOT NULL,
    iteration INTEGER NOT NULL,
    PRIMARY KEY (incarnation, plan_seq)
) STRICT, WITHOUT ROWID;
INSERT INTO activations
    SELECT incarnation, plan_seq, min(iteration) FROM events
    WHERE kind = 'switched' GROUP BY incarnation, plan_seq;

-- A row per incarnation that has reported iterations.
CREATE TABLE upkeep (
    incarnation INTEGER PRIMARY KEY,
    newest INTEGER NOT NULL,                -- iteration
    rolled_to INTEGER NOT NULL DEFAULT -1,  -- iterations up to here are in minutes
    hours_to INTEGER NOT NULL DEFAULT -1,   -- and up to here in hours as well
    raw_from INTEGER NOT NULL DEFAULT 0,    -- rows of iterations before have been removed
    n_rolled INTEGER NOT NULL DEFAULT 0,    -- iterations that are in minutes, or were
    n_raw INTEGER NOT NULL DEFAULT 0,       -- of them those with rows in iterations
    late_from INTEGER,                      -- the first that came after it was rolled up
    late_ns INTEGER,                        -- when the newest of those came
    raw_ns INTEGER,                         -- oldest row of iterations; NULL: there is none
    minutes_ns INTEGER,
    hours_ns INTEGER
) STRICT;
INSERT INTO upkeep (incarnation, newest, raw_ns)
    SELECT id, (SELECT max(iteration) FROM iterations t WHERE t.incarnation = id), updated_ns
    FROM incarnations
    WHERE EXISTS (SELECT 1 FROM iterations t WHERE t.incarnation = id);
CREATE INDEX upkeep_open ON upkeep (incarnation) WHERE newest > rolled_to;
CREATE INDEX upkeep_late ON upkeep (late_ns) WHERE late_ns IS NOT NULL;
CREATE INDEX upkeep_counted ON upkeep (incarnation) WHERE raw_ns IS NOT NULL;
CREATE INDEX upkeep_raw ON upkeep (raw_ns) WHERE raw_ns IS NOT NULL;
CREATE INDEX upkeep_minutes ON upkeep (minutes_ns) WHERE minutes_ns IS NOT NULL;
CREATE INDEX upkeep_hours ON upkeep (hours_ns) WHERE hours_ns IS NOT NULL;

-- What one job wants kept longer or shorter than the controller's own; NULL: as others.
CREATE TABLE job_keep (
    job TEXT PRIMARY KEY REFERENCES jobs (id),
    raw_ns INTEGER,
    raw_iterations INTEGER,
    minutes_ns INTEGER,
    hours_ns INTEGER,
    logs_ns INTEGER,
    jobs_ns INTEGER
) STRICT, WITHOUT ROWID;

-- Jobs that are being removed are in state removing, under a name that no agent can give.
CREATE INDEX jobs_gone ON jobs (state, updated_ns);

-- Ids that are never given twice, even when what had them is gone.
CREATE TABLE sequences (
    name TEXT PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO sequences SELECT 'incarnations', coalesce(max(id), 0) FROM incarnations;
