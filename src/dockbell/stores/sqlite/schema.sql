-- The tables of a store as they stand now: a new store is made of them. An older one comes to the same by the
-- migrations (migrations.py). Times are whole microseconds since 1970, UTC; flags are 0 and 1.

-- One row: the mark of this life of the store. A lost or restored store gets another, so that no id is used twice.
CREATE TABLE life (
    epoch     TEXT NOT NULL,                     -- part of every event's id
    began_at  INTEGER NOT NULL,
    reason    TEXT NOT NULL DEFAULT '',          -- why it began anew; new feeds state it
    copied_at INTEGER,                           -- this is a backup, made then
    moved_to  TEXT NOT NULL DEFAULT ''           -- the database that the store was moved to then, and is in since
) STRICT;

-- Detection -----------------------------------------------------------------------------------------------------------

CREATE TABLE feeds (
    id             INTEGER PRIMARY KEY,
    source         TEXT NOT NULL,
    resource       TEXT NOT NULL,
    key            TEXT,                         -- JSON array of pointers, once learned
    updated_at     TEXT,                         -- pointer
    created_at     TEXT,                         -- pointer
    first_asked_at INTEGER,                      -- the first request, by the service's clock
    watermark      INTEGER,                      -- polls have proven all modified before it
    candidate      INTEGER,                      -- the next watermark, once another run agrees
    passes         INTEGER NOT NULL DEFAULT 0,   -- complete ones
    sequence       INTEGER NOT NULL DEFAULT 0,   -- of the last event
    suspended      INTEGER NOT NULL DEFAULT 0,   -- absent records not believed to be deleted
    confirm_at     INTEGER,                      -- a pass is due that confirms suspected absences
    problem        TEXT NOT NULL DEFAULT '',     -- what stops the feed
    read_settings  TEXT,                         -- JSON object: the settings by which its records are read
    proven         INTEGER NOT NULL DEFAULT 0,   -- its key was unique over a whole pass
    rebaselining   INTEGER NOT NULL DEFAULT 0,   -- its records are read differently since, and stored in silence
    newest         INTEGER,                      -- timestamp accepted
    tick           INTEGER,                      -- a timestamp that very many records share …
    tick_reads     INTEGER NOT NULL DEFAULT 0,   -- … and how many runs have read them all
    lateness       TEXT NOT NULL DEFAULT '',     -- JSON object: how late records become visible
    listing_profile TEXT NOT NULL DEFAULT '',    -- what was learned of its listing
    drift          TEXT,                         -- JSON array: pointers to members that came or went
    drift_decision TEXT,
    drift_at       INTEGER,
    drifted        INTEGER NOT NULL DEFAULT 0,   -- readings that the last run held as drift
    emitted        INTEGER,                      -- snapshots are due for the rows after this
    blind          TEXT,                         -- reason of a gap that is to be stated
    pruned         INTEGER NOT NULL DEFAULT 0,   -- events up to here may be gone
    baselines      INTEGER NOT NULL DEFAULT 0,   -- how often all was stored, or stored otherwise
    dropped        TEXT NOT NULL DEFAULT '[]',   -- JSON array of pointers: members that are not stored any more
    cleaning       TEXT,                         -- JSON object: how far others are removed (cleaning.py); NULL: all are
    boundary       INTEGER,                      -- the first request, by the records' own clock; NULL: not known
    last_row       INTEGER NOT NULL DEFAULT 0,   -- of its records; none is used twice
    token          INTEGER NOT NULL DEFAULT 0,   -- raised when a process takes the feed; commits name it
    plan           TEXT NOT NULL DEFAULT '',     -- JSON object: what its runs found and cost, its interval by that
    signal         TEXT NOT NULL DEFAULT '',     -- JSON object: whether another feed's polls show its changes
    approved_at    INTEGER,                      -- an operator approved deletions: those before do not count any more
    UNIQUE (source, resource)
) STRICT;

-- The narrow part of the snapshots: all that an unchanged record needs. Rows are numbered per feed, from 1.
CREATE TABLE records (
    feed         INTEGER NOT NULL REFERENCES feeds,
    row          INTEGER NOT NULL,
    key          TEXT NOT NULL,
    raw_hash     BLOB NOT NULL,                  -- of the bytes that the API sent
    fingerprint  BLOB NOT NULL,                  -- of the canonical form
    modified     INTEGER,                        -- the record's own timestamp
    revision     INTEGER NOT NULL,
    suspected_at INTEGER,                        -- a complete pass did not show it, for the first time
    there_at     INTEGER,                        -- when the last complete pass before that one began
    gone_at      INTEGER,                        -- a tombstone since
    superseded   BLOB,                           -- fingerprints that it replaced lately
    ignored_until_seen INTEGER NOT NULL DEFAULT 0, -- by absence checks (absence.py)
    absences     INTEGER NOT NULL DEFAULT 0,     -- passes in a row that did not show it
    held         INTEGER NOT NULL DEFAULT 0,     -- a reading of it is held
    missing_at   INTEGER,                        -- first not found when it was asked for
    PRIMARY KEY (feed, row),
    UNIQUE (feed, key)
) STRICT;
CREATE INDEX records_gone ON records (feed, gone_at) WHERE gone_at IS NOT NULL;
CREATE INDEX records_suspected ON records (feed, row) WHERE suspected_at IS NOT NULL;

CREATE TABLE bodies (
    feed INTEGER NOT NULL,
    row  INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (feed, row),
    FOREIGN KEY (feed, row) REFERENCES records
) STRICT;

-- Readings older than what is stored, not yet believed.
CREATE TABLE holds (
    feed        INTEGER NOT NULL,
    row         INTEGER NOT NULL,
    fingerprint BLOB NOT NULL,
    asked_at    INTEGER NOT NULL,                -- the first request that showed it
    body        BLOB NOT NULL,
    PRIMARY KEY (feed, row),
    FOREIGN KEY (feed, row) REFERENCES records
) STRICT;

-- Records that cannot be told apart or read, until a complete pass does not meet them.
CREATE TABLE quarantine (
    feed     INTEGER NOT NULL REFERENCES feeds,
    digest   BLOB NOT NULL,
    key      TEXT NOT NULL,
    problem  TEXT NOT NULL,
    body     BLOB NOT NULL,
    first_at INTEGER NOT NULL,
    last_at  INTEGER NOT NULL,
    PRIMARY KEY (feed, digest)
) STRICT, WITHOUT ROWID;

-- Changes whose events wait for the details of their records.
CREATE TABLE details (
    feed      INTEGER NOT NULL,
    row       INTEGER NOT NULL,
    key       TEXT NOT NULL,
    body      BLOB NOT NULL,                     -- what the list showed last
    kind      TEXT NOT NULL,
    since     INTEGER,
    until     INTEGER NOT NULL,
    modified  INTEGER,
    late      INTEGER NOT NULL,
    via       TEXT NOT NULL,
    is_first  INTEGER NOT NULL,                  -- nothing was known of the record before
    queued_at INTEGER NOT NULL,
    attempts  INTEGER NOT NULL DEFAULT 0,        -- how often its detail was asked for in vain
    visible_at INTEGER,                          -- as events.visible_at
    PRIMARY KEY (feed, row),
    FOREIGN KEY (feed, row) REFERENCES records
) STRICT;
CREATE INDEX details_queue ON details (feed, attempts, queued_at);
CREATE INDEX details_age ON details (feed, queued_at);

-- A pass that goes on, as far as it is safe.
CREATE TABLE checkpoints (
    feed     INTEGER PRIMARY KEY REFERENCES feeds,
    cursor   TEXT NOT NULL,
    run      TEXT NOT NULL,                      -- JSON object: its bounds and counts
    seen     BLOB NOT NULL,                      -- rows that any request showed since it began, compressed
    rows     BLOB NOT NULL,                      -- rows that the pass showed, compressed
    saved_at INTEGER NOT NULL
) STRICT;

-- The log of runs, kept as long as the events.
CREATE TABLE runs (
    id       INTEGER PRIMARY KEY,
    feed     INTEGER NOT NULL REFERENCES feeds,
    kind     TEXT NOT NULL,
    complete INTEGER NOT NULL,
    asked_at INTEGER NOT NULL,
    since    INTEGER,
    ended_at INTEGER NOT NULL,
    pages    INTEGER NOT NULL,
    records  INTEGER NOT NULL,
    events   INTEGER NOT NULL,
    problem  TEXT NOT NULL,
    tally    TEXT NOT NULL DEFAULT '{}',         -- JSON object: what it found, counted in records
    sent_at  INTEGER                             -- its first request, by our clock
) STRICT;
CREATE INDEX runs_last ON runs (feed, kind, complete, id);
CREATE INDEX runs_ended ON runs (ended_at);

-- Readings that were not simply stored, and why; kept as long as the events.
CREATE TABLE notes (
    id          INTEGER PRIMARY KEY,
    feed        INTEGER NOT NULL REFERENCES feeds,
    key         TEXT NOT NULL,
    at          INTEGER NOT NULL,
    via         TEXT NOT NULL,
    finding     TEXT NOT NULL,
    modified    INTEGER,
    fingerprint BLOB,
    sequence    INTEGER                          -- of its event
) STRICT;
CREATE INDEX notes_key ON notes (feed, key, id);
CREATE INDEX notes_at ON notes (at);

-- Delivery ------------------------------------------------------------------------------------------------------------

-- The outbox: append-only, numbered per feed without gaps.
CREATE TABLE events (
    entry       INTEGER PRIMARY KEY AUTOINCREMENT, -- its place among the events of all feeds, never used twice
    feed        INTEGER NOT NULL REFERENCES feeds,
    sequence    INTEGER NOT NULL,
    key         TEXT NOT NULL,
    id          TEXT NOT NULL,
    type        TEXT NOT NULL,
    change      TEXT NOT NULL,
    revision    INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    body        BLOB NOT NULL,
    visible_at  INTEGER,                         -- when the change became visible in the API, by our clock, as estimated
    UNIQUE (feed, sequence)
) STRICT;
CREATE INDEX events_key ON events (feed, key, sequence);

-- How far each sink has come in each feed.
CREATE TABLE positions (
    sink       TEXT NOT NULL,
    feed       INTEGER NOT NULL REFERENCES feeds,
    sequence   INTEGER NOT NULL,                 -- up to here all is settled but the blocked keys
    origin     INTEGER NOT NULL DEFAULT 0,       -- the sink began, or began again, after this sequence …
    began_at   INTEGER,                          -- … at this time
    lost_since INTEGER,                          -- when the first event was recorded that it lost
    backfilled_to INTEGER,                       -- the row; NULL: no backfill is due
    PRIMARY KEY (sink, feed)
) STRICT, WITHOUT ROWID;

-- Keys that wait for their next attempt, or behind a dead letter.
CREATE TABLE blocked (
    sink       TEXT NOT NULL,
    feed       INTEGER NOT NULL REFERENCES feeds,
    key        TEXT NOT NULL,
    sequence   INTEGER NOT NULL,                 -- events of the key are owed from here on
    attempts   INTEGER NOT NULL,
    due        INTEGER NOT NULL,
    error      TEXT NOT NULL,
    held       INTEGER NOT NULL DEFAULT 0,       -- until an operator decides
    planned_at INTEGER,                          -- when its next attempt was planned; NULL: it is due at once
    PRIMARY KEY (sink, feed, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX blocked_held ON blocked (sink) WHERE held = 1;

-- Backfilled records all have the number of the sink's origin: their keys tell them apart.
CREATE TABLE dead_letters (
    sink     TEXT NOT NULL,
    feed     INTEGER NOT NULL REFERENCES feeds,
    sequence INTEGER NOT NULL,
    key      TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    died_at  INTEGER NOT NULL,
    error    TEXT NOT NULL,
    answer   TEXT NOT NULL DEFAULT '',           -- what the receiver answered to the last attempt
    PRIMARY KEY (sink, feed, sequence, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX dead_letters_died ON dead_letters (died_at);

-- Events to be sent again, or for the first time, on an operator's request.
CREATE TABLE replays (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    sink     TEXT NOT NULL,
    feed     INTEGER NOT NULL REFERENCES feeds,
    sequence INTEGER NOT NULL,
    key      TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    due      INTEGER NOT NULL DEFAULT 0,
    error    TEXT NOT NULL DEFAULT '',
    UNIQUE (sink, feed, sequence, key)
) STRICT;
CREATE INDEX replays_due ON replays (sink, due, id);

-- What is to be known of a sink's receiver after a restart.
CREATE TABLE receivers (
    sink     TEXT PRIMARY KEY,
    asked_at INTEGER,                            -- when it asked for a pause; NULL: it has not …
    until    INTEGER,                            -- … and until when
    hurried  INTEGER NOT NULL DEFAULT 0,         -- how often an operator had all that waits sent at once
    decided  INTEGER NOT NULL DEFAULT 0          -- how often an operator decided about dead letters
) STRICT, WITHOUT ROWID;

-- How each relay last found its receiver, written whenever that changes.
CREATE TABLE conditions (
    sink      TEXT PRIMARY KEY,
    condition TEXT NOT NULL,
    since     INTEGER NOT NULL,
    reason    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Attempts to deliver, the last of all sinks: a ring.
CREATE TABLE attempts (
    id        INTEGER PRIMARY KEY,               -- in the order in which they ended
    sink      TEXT NOT NULL,
    feed      INTEGER NOT NULL REFERENCES feeds,
    key       TEXT NOT NULL,
    sequence  INTEGER NOT NULL,
    number    INTEGER NOT NULL,                  -- among the attempts of the event
    began_at  INTEGER NOT NULL,
    took      INTEGER NOT NULL,                  -- microseconds
    verdict   TEXT NOT NULL,
    error     TEXT NOT NULL,
    status    INTEGER,                           -- of HTTP
    answer    TEXT NOT NULL,                     -- what the receiver answered, cut and without secrets
    next_at   INTEGER,                           -- when the next was planned for
    is_replay INTEGER NOT NULL
) STRICT;
CREATE INDEX attempts_key ON attempts (feed, key);

-- How long changes took to reach each sink, by quarters of an hour; quarters without any have no row.
CREATE TABLE delays (
    began_at  INTEGER NOT NULL,                  -- the quarter
    feed      INTEGER NOT NULL REFERENCES feeds,
    sink      TEXT NOT NULL,
    buckets   TEXT NOT NULL,                     -- JSON object: how many delays are in each (core/delays.py)
    waited    INTEGER NOT NULL,                  -- the sum of the parts in the outbox, in microseconds
    predicted INTEGER,                           -- the sum of the mean waits that the plan predicted
    PRIMARY KEY (began_at, feed, sink)
) STRICT, WITHOUT ROWID;

-- Operators -----------------------------------------------------------------------------------------------------------

-- Sinks that take nothing until they are resumed.
CREATE TABLE pauses (sink TEXT PRIMARY KEY, paused_at INTEGER NOT NULL, reason TEXT NOT NULL) STRICT;

-- Commands of an operator to the daemon, from another process.
CREATE TABLE commands (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    kind    TEXT NOT NULL,
    feed    INTEGER REFERENCES feeds,
    made_at INTEGER NOT NULL,
    done_at INTEGER,
    outcome TEXT NOT NULL DEFAULT '',            -- JSON object, see CommandOutcome; text in rows of older versions
    key     TEXT NOT NULL DEFAULT ''             -- of the record that is meant
) STRICT;
