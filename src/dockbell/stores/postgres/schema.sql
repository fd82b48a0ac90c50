-- The tables of a store in PostgreSQL as they stand now: those of SQLite, with the same columns, and those of processes.
-- A new store is made of them; an older one comes to the same by the migrations (migrations.py). Times are whole
-- microseconds since 1970, UTC. Text compares and sorts by its bytes, as in SQLite.

-- How long a record or event is that may be packed: its length stands behind the mark (packing.py).
CREATE FUNCTION unpacked_length(stored BYTEA) RETURNS BIGINT LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN
    CASE
        WHEN substr(stored, 1, 4) = '\x00647a31' :: bytea
        THEN ('x' || encode(substr(stored, 5, 4), 'hex')) :: bit(32) :: bigint
        ELSE length(stored)
    END;

-- One row: which migrations the tables have seen, and where they are.
CREATE TABLE schema_version (
    version BIGINT NOT NULL,                               -- how many have begun
    oldest BIGINT NOT NULL,                                -- who knows fewer than this may not work on the store
    place TEXT COLLATE "C" NOT NULL DEFAULT ''             -- tells that they were restored (epoch.py)
);

-- The processes that work on the store. Only the database's clock counts.
CREATE TABLE holders (
    id TEXT COLLATE "C" PRIMARY KEY,                       -- random
    name TEXT COLLATE "C" NOT NULL,                        -- what it is, for people: process and host
    version TEXT COLLATE "C" NOT NULL,                     -- of its dockbell …
    migrations BIGINT NOT NULL,                            -- … and how many migrations that knows
    slot BIGINT NOT NULL UNIQUE,                           -- the smallest number from 0 that was free when it came
    alone BOOLEAN NOT NULL,                                -- no other may work on the store meanwhile
    began_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    expires_at TIMESTAMPTZ NOT NULL,                       -- it is alive until then, and as long as its row is there
    taken_over BIGINT NOT NULL DEFAULT 0                   -- sources of dead processes that it has taken
);

-- The last transaction of each connection that writes: where the answer to a commit is lost, its number tells. Numbers
-- are even; an odd one tells that the one before it was given up.
CREATE TABLE commits (
    line TEXT COLLATE "C" PRIMARY KEY,                     -- random
    holder TEXT COLLATE "C" NOT NULL REFERENCES holders ON DELETE CASCADE,
    number BIGINT NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX commits_holder ON commits (holder);

-- Each transaction that writes begins with this. The lock keeps the row of the process from being deleted, and not from
-- being renewed, until the transaction ends; the time is how long the transaction may rest.
CREATE FUNCTION begin_writing(own TEXT, own_line TEXT, next BIGINT, is_same_server BOOLEAN, rest TEXT) RETURNS VOID
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM holders WHERE id = own FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE 'the row of the process is gone' USING ERRCODE = 'LE001';
    ELSIF NOT is_same_server THEN
        RAISE 'another server has taken over' USING ERRCODE = 'LE002';
    END IF;
    PERFORM set_config('idle_in_transaction_session_timeout', rest, true);
    INSERT INTO commits (line, holder, number) VALUES (own_line, own, next)
        ON CONFLICT (line) DO UPDATE SET number = excluded.number WHERE commits.number < excluded.number;
    IF NOT FOUND THEN
        RAISE 'the transaction was given up before it came here' USING ERRCODE = 'LE004';
    END IF;
END $$;

-- Whether a transaction of a connection that was lost is committed. It waits for one that goes on, and lets one that is
-- still on its way be refused. NULL: the row of the process is gone, and with it what tells.
CREATE FUNCTION has_committed(own TEXT, own_line TEXT, asked BIGINT) RETURNS BOOLEAN
LANGUAGE plpgsql AS $$
DECLARE
    last BIGINT;
BEGIN
    INSERT INTO commits (line, holder, number) SELECT own_line, id, 0 FROM holders WHERE id = own
        ON CONFLICT (line) DO NOTHING;
    SELECT number INTO last FROM commits WHERE line = own_line FOR UPDATE;
    UPDATE commits SET number = asked + 1 WHERE line = own_line AND number < asked;
    RETURN last = asked;
END $$;

-- Which process has which source: it asks its API, and delivers its events. The source "dockbell" is that of notices; who
-- has it prunes, too.
CREATE TABLE leases (
    source TEXT COLLATE "C" PRIMARY KEY,
    account TEXT COLLATE "C" NOT NULL,                     -- the first source with its API key: they go together
    holder TEXT COLLATE "C" REFERENCES holders ON DELETE SET NULL,
    leaving BOOLEAN NOT NULL DEFAULT false,                -- the holder is about to give it up
    taken_at TIMESTAMPTZ,                                  -- NULL: never taken, or handed over since
    spent TEXT COLLATE "C" NOT NULL DEFAULT '[]',          -- JSON array: requests of the last minute (leases.py) …
    spent_at TIMESTAMPTZ                                   -- … as of then; in the row of the first source with the key
);
CREATE INDEX leases_holder ON leases (holder);
CREATE INDEX leases_account ON leases (account);

-- What the processes have of their configuration in common, each revision with all of it. The newest one is followed.
CREATE TABLE configurations (
    revision BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest TEXT COLLATE "C" NOT NULL,                      -- of the file that it was made of (config/shared.py)
    content TEXT COLLATE "C" NOT NULL,                     -- JSON object
    made_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    made_by TEXT COLLATE "C" NOT NULL,                     -- for people: process and host
    version TEXT COLLATE "C" NOT NULL                      -- of the dockbell that made it
);
CREATE INDEX configurations_digest ON configurations (digest);

-- One row: the mark of this life of the store. A lost or restored store gets another, so that no id is used twice.
CREATE TABLE life (
    epoch TEXT COLLATE "C" NOT NULL,                       -- part of every event's id
    began_at BIGINT NOT NULL,
    reason TEXT COLLATE "C" NOT NULL DEFAULT '',           -- why it began anew; new feeds state it
    copied_at BIGINT,                                      -- this is a backup, made then
    moved_to TEXT COLLATE "C" NOT NULL DEFAULT ''          -- only of SQLite's file: where it was moved to
);

-- Detection -----------------------------------------------------------------------------------------------------------

CREATE TABLE feeds (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source TEXT COLLATE "C" NOT NULL,
    resource TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C",                                  -- JSON array of pointers, once learned
    updated_at TEXT COLLATE "C",                           -- pointer
    created_at TEXT COLLATE "C",                           -- pointer
    first_asked_at BIGINT,                                 -- the first request, by the service's clock
    watermark BIGINT,                                      -- polls have proven all modified before it
    candidate BIGINT,                                      -- the next watermark, once another run agrees
    passes BIGINT NOT NULL DEFAULT 0,                      -- complete ones
    sequence BIGINT NOT NULL DEFAULT 0,                    -- of the last event
    suspended BIGINT NOT NULL DEFAULT 0,                   -- absent records not believed to be deleted
    confirm_at BIGINT,                                     -- a pass is due that confirms suspected absences
    problem TEXT COLLATE "C" NOT NULL DEFAULT '',          -- what stops the feed
    read_settings TEXT COLLATE "C",                        -- JSON object: the settings by which its records are read
    proven BOOLEAN NOT NULL DEFAULT false,                 -- its key was unique over a whole pass
    rebaselining BOOLEAN NOT NULL DEFAULT false, -- its records are read differently since, and stored in silence
    newest BIGINT,                                         -- timestamp accepted
    tick BIGINT,                                           -- a timestamp that very many records share …
    tick_reads BIGINT NOT NULL DEFAULT 0,                  -- … and how many runs have read them all
    lateness TEXT COLLATE "C" NOT NULL DEFAULT '',         -- JSON object: how late records become visible
    listing_profile TEXT COLLATE "C" NOT NULL DEFAULT '',  -- what was learned of its listing
    drift TEXT COLLATE "C",                                -- JSON array: pointers to members that came or went
    drift_decision TEXT COLLATE "C",
    drift_at BIGINT,
    drifted BIGINT NOT NULL DEFAULT 0,                     -- readings that the last run held as drift
    emitted BIGINT,                                        -- snapshots are due for the rows after this
    blind TEXT COLLATE "C",                                -- reason of a gap that is to be stated
    pruned BIGINT NOT NULL DEFAULT 0,                      -- events up to here may be gone
    baselines BIGINT NOT NULL DEFAULT 0,                   -- how often all was stored, or stored otherwise
    dropped TEXT COLLATE "C" NOT NULL DEFAULT '[]', -- JSON array of pointers: members that are not stored any more
    cleaning TEXT COLLATE "C", -- JSON object: how far others are removed (cleaning.py); NULL: all are
    boundary BIGINT, -- the first request, by the records' own clock; NULL: not known
    last_row BIGINT NOT NULL DEFAULT 0,                    -- of its records; none is used twice
    token BIGINT NOT NULL DEFAULT 0,                       -- raised when a process takes the feed; commits name it
    plan TEXT COLLATE "C" NOT NULL DEFAULT '', -- JSON object: what its runs found and cost, its interval by that
    signal TEXT COLLATE "C" NOT NULL DEFAULT '',           -- JSON object: whether another feed's polls show its changes
    approved_at BIGINT,                                    -- an operator approved deletions: those before do not count any more
    UNIQUE (source, resource)
);

-- Refuses a statement on a feed, with the SQLSTATE, unless a column of it still has the value that the process knows: the
-- token (LE003, another process has taken the feed), or the last number (LE005, its events were numbered after another).
CREATE FUNCTION is_still(source TEXT, resource TEXT, stored BIGINT, known BIGINT, refusal TEXT) RETURNS BOOLEAN
LANGUAGE plpgsql AS $$
BEGIN
    IF stored <> known THEN
        RAISE '%/%', source, resource USING ERRCODE = refusal;
    END IF;
    RETURN true;
END $$;

-- The narrow part of the snapshots: all that an unchanged record needs. Rows are numbered per feed, from 1.
CREATE TABLE records (
    feed BIGINT NOT NULL REFERENCES feeds,
    row BIGINT NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    raw_hash BYTEA NOT NULL,                               -- of the bytes that the API sent
    fingerprint BYTEA NOT NULL,                            -- of the canonical form
    modified BIGINT,                                       -- the record's own timestamp
    revision BIGINT NOT NULL,
    suspected_at BIGINT,                                   -- a complete pass did not show it, for the first time
    there_at BIGINT,                                       -- when the last complete pass before that one began
    gone_at BIGINT,                                        -- a tombstone since
    superseded BYTEA,                                      -- fingerprints that it replaced lately
    ignored_until_seen BIGINT NOT NULL DEFAULT 0,          -- by absence checks (absence.py)
    absences BIGINT NOT NULL DEFAULT 0,                    -- passes in a row that did not show it
    held BOOLEAN NOT NULL DEFAULT false,                   -- a reading of it is held
    missing_at BIGINT,                                     -- first not found when it was asked for
    PRIMARY KEY (feed, row),
    UNIQUE (feed, key)
);
CREATE INDEX records_gone ON records (feed, gone_at) WHERE gone_at IS NOT NULL;
CREATE INDEX records_suspected ON records (feed, row) WHERE suspected_at IS NOT NULL;

CREATE TABLE bodies (
    feed BIGINT NOT NULL,
    row BIGINT NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (feed, row),
    FOREIGN KEY (feed, row) REFERENCES records
);

-- Readings older than what is stored, not yet believed.
CREATE TABLE holds (
    feed BIGINT NOT NULL,
    row BIGINT NOT NULL,
    fingerprint BYTEA NOT NULL,
    asked_at BIGINT NOT NULL,                              -- the first request that showed it
    body BYTEA NOT NULL,
    PRIMARY KEY (feed, row),
    FOREIGN KEY (feed, row) REFERENCES records
);

-- Records that cannot be told apart or read, until a complete pass does not meet them.
CREATE TABLE quarantine (
    feed BIGINT NOT NULL REFERENCES feeds,
    digest BYTEA NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    problem TEXT COLLATE "C" NOT NULL,
    body BYTEA NOT NULL,
    first_at BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    PRIMARY KEY (feed, digest)
);

-- Changes whose events wait for the details of their records.
CREATE TABLE details (
    feed BIGINT NOT NULL,
    row BIGINT NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    body BYTEA NOT NULL,                                   -- what the list showed last
    kind TEXT COLLATE "C" NOT NULL,
    since BIGINT,
    until BIGINT NOT NULL,
    modified BIGINT,
    late BOOLEAN NOT NULL,
    via TEXT COLLATE "C" NOT NULL,
    is_first BOOLEAN NOT NULL,                             -- nothing was known of the record before
    queued_at BIGINT NOT NULL,
    attempts BIGINT NOT NULL DEFAULT 0,                    -- how often its detail was asked for in vain
    visible_at BIGINT,                                     -- as events.visible_at
    PRIMARY KEY (feed, row),
    FOREIGN KEY (feed, row) REFERENCES records
);
CREATE INDEX details_queue ON details (feed, attempts, queued_at);
CREATE INDEX details_age ON details (feed, queued_at);

-- A pass that goes on, as far as it is safe.
CREATE TABLE checkpoints (
    feed BIGINT PRIMARY KEY REFERENCES feeds,
    cursor TEXT COLLATE "C" NOT NULL,
    run TEXT COLLATE "C" NOT NULL,                         -- JSON object: its bounds and counts
    seen BYTEA NOT NULL,                                   -- rows that any request showed since it began, compressed
    rows BYTEA NOT NULL,                                   -- rows that the pass showed, compressed
    saved_at BIGINT NOT NULL
);

-- The log of runs, kept as long as the events.
CREATE TABLE runs (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    feed BIGINT NOT NULL REFERENCES feeds,
    kind TEXT COLLATE "C" NOT NULL,
    complete BOOLEAN NOT NULL,
    asked_at BIGINT NOT NULL,
    since BIGINT,
    ended_at BIGINT NOT NULL,
    pages BIGINT NOT NULL,
    records BIGINT NOT NULL,
    events BIGINT NOT NULL,
    problem TEXT COLLATE "C" NOT NULL,
    tally TEXT COLLATE "C" NOT NULL DEFAULT '{}',          -- JSON object: what it found, counted in records
    sent_at BIGINT                                         -- its first request, by our clock
);
CREATE INDEX runs_last ON runs (feed, kind, complete, id);
CREATE INDEX runs_ended ON runs (ended_at);

-- Readings that were not simply stored, and why; kept as long as the events.
CREATE TABLE notes (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    feed BIGINT NOT NULL REFERENCES feeds,
    key TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    via TEXT COLLATE "C" NOT NULL,
    finding TEXT COLLATE "C" NOT NULL,
    modified BIGINT,
    fingerprint BYTEA,
    sequence BIGINT                                        -- of its event
);
CREATE INDEX notes_key ON notes (feed, key, id);
CREATE INDEX notes_at ON notes (at);

-- Delivery ------------------------------------------------------------------------------------------------------------

-- The outbox: append-only, numbered per feed without gaps. Each day has a partition; the default one takes the events of
-- days that have none. partitions.py makes each of them like the default one. Events do not reference their feed: the
-- transaction that adds them locks the feed's row anyway, and with a reference every new partition would lock all feeds.
CREATE TABLE events (
    entry BIGINT GENERATED ALWAYS AS IDENTITY,             -- its place among the events of all feeds, never used twice
    feed BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    change TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    recorded_at BIGINT NOT NULL,
    body BYTEA NOT NULL,
    visible_at BIGINT -- when the change became visible in the API, by our clock, as estimated
) PARTITION BY RANGE (recorded_at);
CREATE TABLE events_default PARTITION OF events (PRIMARY KEY (entry), UNIQUE (feed, sequence)) DEFAULT;
CREATE INDEX events_default_key ON events_default (feed, key, sequence);

-- How far each sink has come in each feed.
CREATE TABLE positions (
    sink TEXT COLLATE "C" NOT NULL,
    feed BIGINT NOT NULL REFERENCES feeds,
    sequence BIGINT NOT NULL,                              -- up to here all is settled but the blocked keys
    origin BIGINT NOT NULL DEFAULT 0,                      -- the sink began, or began again, after this sequence …
    began_at BIGINT,                                       -- … at this time
    lost_since BIGINT,                                     -- when the first event was recorded that it lost
    backfilled_to BIGINT,                                  -- the row; NULL: no backfill is due
    PRIMARY KEY (sink, feed)
);

-- Keys that wait for their next attempt, or behind a dead letter.
CREATE TABLE blocked (
    sink TEXT COLLATE "C" NOT NULL,
    feed BIGINT NOT NULL REFERENCES feeds,
    key TEXT COLLATE "C" NOT NULL,
    sequence BIGINT NOT NULL,                              -- events of the key are owed from here on
    attempts BIGINT NOT NULL,
    due BIGINT NOT NULL,
    error TEXT COLLATE "C" NOT NULL,
    held BOOLEAN NOT NULL DEFAULT false,                   -- until an operator decides
    planned_at BIGINT,                                     -- when its next attempt was planned; NULL: it is due at once
    PRIMARY KEY (sink, feed, key)
);
CREATE INDEX blocked_held ON blocked (sink) WHERE held;

-- Backfilled records all have the number of the sink's origin: their keys tell them apart.
CREATE TABLE dead_letters (
    sink TEXT COLLATE "C" NOT NULL,
    feed BIGINT NOT NULL REFERENCES feeds,
    sequence BIGINT NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    attempts BIGINT NOT NULL,
    died_at BIGINT NOT NULL,
    error TEXT COLLATE "C" NOT NULL,
    answer TEXT COLLATE "C" NOT NULL DEFAULT '',           -- what the receiver answered to the last attempt
    PRIMARY KEY (sink, feed, sequence, key)
);
CREATE INDEX dead_letters_died ON dead_letters (died_at);

-- Events to be sent again, or for the first time, on an operator's request.
CREATE TABLE replays (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sink TEXT COLLATE "C" NOT NULL,
    feed BIGINT NOT NULL REFERENCES feeds,
    sequence BIGINT NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    attempts BIGINT NOT NULL DEFAULT 0,
    due BIGINT NOT NULL DEFAULT 0,
    error TEXT COLLATE "C" NOT NULL DEFAULT '',
    UNIQUE (sink, feed, sequence, key)
);
CREATE INDEX replays_due ON replays (sink, due, id);

-- What is to be known of a sink's receiver after a restart.
CREATE TABLE receivers (
    sink TEXT COLLATE "C" PRIMARY KEY,
    asked_at BIGINT,                                       -- when it asked for a pause; NULL: it has not …
    until BIGINT,                                          -- … and until when
    hurried BIGINT NOT NULL DEFAULT 0,                     -- how often an operator had all that waits sent at once
    decided BIGINT NOT NULL DEFAULT 0                      -- how often an operator decided about dead letters
);

-- How each relay last found its receiver, written whenever that changes.
CREATE TABLE conditions (
    sink TEXT COLLATE "C" PRIMARY KEY,
    condition TEXT COLLATE "C" NOT NULL,
    since BIGINT NOT NULL,
    reason TEXT COLLATE "C" NOT NULL
);

-- Attempts to deliver, the last of all sinks: a ring.
CREATE TABLE attempts (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,    -- in the order in which they ended, about
    sink TEXT COLLATE "C" NOT NULL,
    feed BIGINT NOT NULL REFERENCES feeds,
    key TEXT COLLATE "C" NOT NULL,
    sequence BIGINT NOT NULL,
    number BIGINT NOT NULL,                                -- among the attempts of the event
    began_at BIGINT NOT NULL,
    took BIGINT NOT NULL,                                  -- microseconds
    verdict TEXT COLLATE "C" NOT NULL,
    error TEXT COLLATE "C" NOT NULL,
    status BIGINT,                                         -- of HTTP
    answer TEXT COLLATE "C" NOT NULL,                      -- what the receiver answered, cut and without secrets
    next_at BIGINT,                                        -- when the next was planned for
    is_replay BOOLEAN NOT NULL
);
CREATE INDEX attempts_key ON attempts (feed, key);

-- How long changes took to reach each sink, by quarters of an hour; quarters without any have no row.
CREATE TABLE delays (
    began_at BIGINT NOT NULL,                              -- the quarter
    feed BIGINT NOT NULL REFERENCES feeds,
    sink TEXT COLLATE "C" NOT NULL,
    buckets TEXT COLLATE "C" NOT NULL,                     -- JSON object: how many delays are in each (core/delays.py)
    waited BIGINT NOT NULL,                                -- the sum of the parts in the outbox, in microseconds
    predicted BIGINT,                                      -- the sum of the mean waits that the plan predicted
    PRIMARY KEY (began_at, feed, sink)
);

-- Operators -----------------------------------------------------------------------------------------------------------

-- Sinks that take nothing until they are resumed.
CREATE TABLE pauses (
    sink TEXT COLLATE "C" PRIMARY KEY,
    paused_at BIGINT NOT NULL,
    reason TEXT COLLATE "C" NOT NULL
);

-- Commands of an operator to the daemon, from another process.
CREATE TABLE commands (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind TEXT COLLATE "C" NOT NULL,
    feed BIGINT REFERENCES feeds,
    made_at BIGINT NOT NULL,
    done_at BIGINT,
    outcome TEXT COLLATE "C" NOT NULL DEFAULT '', -- JSON object, see CommandOutcome; text in rows of older versions
    key TEXT COLLATE "C" NOT NULL DEFAULT ''               -- of the record that is meant
);
