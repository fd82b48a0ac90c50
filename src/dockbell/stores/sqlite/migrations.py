"""The steps from each version of the schema to the next; ``schema.sql`` is what they come to.

The version of a store is how many of them it has seen. A migration is never changed once it was released; a new one is
added, and ``schema.sql`` with it. So this module only grows.
"""

from __future__ import annotations

from typing import Final

MIGRATIONS: Final = (
    """
    -- One row: the mark of this life of the store. A lost or restored store gets another, so that no id is used twice.
    CREATE TABLE life (epoch TEXT NOT NULL, began_at INTEGER NOT NULL) STRICT;

    CREATE TABLE feeds (
        id             INTEGER PRIMARY KEY,
        source         TEXT NOT NULL,
        resource       TEXT NOT NULL,
        key            TEXT,                          -- JSON array of pointers, once learned
        updated_at     TEXT,                          -- pointer
        created_at     TEXT,                          -- pointer
        first_asked_at INTEGER,                       -- S0
        watermark      INTEGER,
        candidate      INTEGER,
        passes         INTEGER NOT NULL DEFAULT 0,    -- complete ones
        sequence       INTEGER NOT NULL DEFAULT 0,    -- of the last event
        held           INTEGER NOT NULL DEFAULT 0,    -- absent records not believed to be deleted
        confirm_at     INTEGER,                       -- a pass is due that confirms suspected absences
        problem        TEXT NOT NULL DEFAULT '',
        UNIQUE (source, resource)
    ) STRICT;

    -- The last complete and the last incomplete run of each kind.
    CREATE TABLE runs (
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
        PRIMARY KEY (feed, kind, complete)
    ) STRICT, WITHOUT ROWID;

    -- The narrow part of the snapshots: all that an unchanged record needs. Rows are never deleted.
    CREATE TABLE records (
        id           INTEGER PRIMARY KEY,
        feed         INTEGER NOT NULL REFERENCES feeds,
        key          TEXT NOT NULL,
        raw_hash     BLOB NOT NULL,
        fingerprint  BLOB NOT NULL,
        modified     INTEGER,
        revision     INTEGER NOT NULL,
        suspected_at INTEGER,                         -- a complete pass did not show it, for the first time
        there_at     INTEGER,                         -- S of the last complete pass before that one
        gone_at      INTEGER,                         -- a tombstone since
        UNIQUE (feed, key)
    ) STRICT;
    CREATE INDEX records_gone ON records (feed, gone_at) WHERE gone_at IS NOT NULL;

    CREATE TABLE bodies (record INTEGER PRIMARY KEY REFERENCES records, body BLOB NOT NULL) STRICT;

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
        UNIQUE (feed, sequence)
    ) STRICT;
    CREATE INDEX events_key ON events (feed, key, sequence);

    CREATE TABLE positions (
        sink     TEXT NOT NULL,
        feed     INTEGER NOT NULL REFERENCES feeds,
        sequence INTEGER NOT NULL,
        PRIMARY KEY (sink, feed)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE blocked (
        sink     TEXT NOT NULL,
        feed     INTEGER NOT NULL REFERENCES feeds,
        key      TEXT NOT NULL,
        sequence INTEGER NOT NULL,                    -- events of the key are owed from here on
        attempts INTEGER NOT NULL,
        due      INTEGER NOT NULL,
        error    TEXT NOT NULL,
        PRIMARY KEY (sink, feed, key)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE dead_letters (
        sink     TEXT NOT NULL,
        feed     INTEGER NOT NULL REFERENCES feeds,
        sequence INTEGER NOT NULL,
        key      TEXT NOT NULL,
        attempts INTEGER NOT NULL,
        died_at  INTEGER NOT NULL,
        error    TEXT NOT NULL,
        PRIMARY KEY (sink, feed, sequence)
    ) STRICT, WITHOUT ROWID;
    """,
    """
    ALTER TABLE life ADD COLUMN reason TEXT NOT NULL DEFAULT '';        -- why it began anew; new feeds state it
    ALTER TABLE feeds ADD COLUMN signature TEXT;                        -- JSON object: how its records are read
    ALTER TABLE feeds ADD COLUMN proven INTEGER NOT NULL DEFAULT 0;     -- its key was unique over a whole pass
    ALTER TABLE feeds ADD COLUMN rebaselining INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE feeds ADD COLUMN newest INTEGER;                        -- timestamp accepted
    ALTER TABLE feeds ADD COLUMN tick INTEGER;                          -- a bulk tick, and how many runs read it whole
    ALTER TABLE feeds ADD COLUMN tick_reads INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE feeds ADD COLUMN lateness TEXT NOT NULL DEFAULT '';
    ALTER TABLE feeds ADD COLUMN habits TEXT NOT NULL DEFAULT '';       -- what was learned of its listing
    ALTER TABLE feeds ADD COLUMN drift TEXT;                            -- JSON array: pointers that came or went
    ALTER TABLE feeds ADD COLUMN drift_decision TEXT;
    ALTER TABLE feeds ADD COLUMN drift_at INTEGER;
    ALTER TABLE feeds ADD COLUMN drifted INTEGER NOT NULL DEFAULT 0;    -- readings that the last run held as drift
    ALTER TABLE feeds ADD COLUMN emitted INTEGER;                       -- snapshots are due for the rows after this
    ALTER TABLE feeds ADD COLUMN blind TEXT;                            -- reason of a gap that is to be stated
    UPDATE feeds SET proven = passes > 0;

    ALTER TABLE records ADD COLUMN superseded BLOB;                     -- fingerprints that it replaced lately
    ALTER TABLE records ADD COLUMN dormant INTEGER NOT NULL DEFAULT 0;  -- not missed until it is seen again
    ALTER TABLE records ADD COLUMN absences INTEGER NOT NULL DEFAULT 0; -- passes in a row that did not show it
    ALTER TABLE records ADD COLUMN held INTEGER NOT NULL DEFAULT 0;     -- a reading of it is held

    CREATE TABLE holds (
        record      INTEGER PRIMARY KEY REFERENCES records,
        fingerprint BLOB NOT NULL,
        asked_at    INTEGER NOT NULL,                  -- S of the first request that showed it
        body        BLOB NOT NULL
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
        record    INTEGER PRIMARY KEY REFERENCES records,
        feed      INTEGER NOT NULL REFERENCES feeds,
        key       TEXT NOT NULL,
        body      BLOB NOT NULL,                       -- what the list showed last
        kind      TEXT NOT NULL,
        since     INTEGER,
        until     INTEGER NOT NULL,
        modified  INTEGER,
        late      INTEGER NOT NULL,
        via       TEXT NOT NULL,
        is_first  INTEGER NOT NULL,                    -- nothing was known of the record before
        queued_at INTEGER NOT NULL,
        attempts  INTEGER NOT NULL DEFAULT 0           -- how often its detail was asked for in vain
    ) STRICT;
    CREATE INDEX details_queue ON details (feed, attempts, queued_at);
    CREATE INDEX details_age ON details (feed, queued_at);

    -- A pass that goes on, as far as it is safe.
    CREATE TABLE checkpoints (
        feed     INTEGER PRIMARY KEY REFERENCES feeds,
        cursor   TEXT NOT NULL,
        walk     TEXT NOT NULL,                        -- JSON object: its bounds and counts
        seen     BLOB NOT NULL,                        -- rows that requests showed since it began, compressed
        rows     BLOB NOT NULL,                        -- those that it showed itself
        saved_at INTEGER NOT NULL
    ) STRICT;

    -- Runs become a log, kept as long as the events.
    ALTER TABLE runs RENAME TO old_runs;
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
        tally    TEXT NOT NULL DEFAULT '{}'
    ) STRICT;
    INSERT INTO runs (feed, kind, complete, asked_at, since, ended_at, pages, records, events, problem)
        SELECT feed, kind, complete, asked_at, since, ended_at, pages, records, events, problem FROM old_runs
        ORDER BY ended_at;
    DROP TABLE old_runs;
    CREATE INDEX runs_last ON runs (feed, kind, complete, id);
    CREATE INDEX runs_ended ON runs (ended_at);

    -- What readings came to that were not simply as stored, kept as long as the events.
    CREATE TABLE notes (
        id          INTEGER PRIMARY KEY,
        feed        INTEGER NOT NULL REFERENCES feeds,
        key         TEXT NOT NULL,
        at          INTEGER NOT NULL,
        via         TEXT NOT NULL,
        finding     TEXT NOT NULL,
        modified    INTEGER,
        fingerprint BLOB,
        sequence    INTEGER                            -- of the event that it came to
    ) STRICT;
    CREATE INDEX notes_key ON notes (feed, key, id);
    CREATE INDEX notes_at ON notes (at);

    -- What an operator asked of the daemon, from another process.
    CREATE TABLE wishes (
        id      INTEGER PRIMARY KEY AUTOINCREMENT,
        wish    TEXT NOT NULL,
        feed    INTEGER REFERENCES feeds,
        made_at INTEGER NOT NULL,
        done_at INTEGER,
        outcome TEXT NOT NULL DEFAULT ''
    ) STRICT;
    """,
    """
    ALTER TABLE feeds ADD COLUMN pruned INTEGER NOT NULL DEFAULT 0;     -- events up to here may be gone
    UPDATE feeds SET pruned = coalesce((SELECT max(sequence) - 1 FROM events WHERE feed = feeds.id AND NOT EXISTS
        (SELECT 1 FROM events AS prior WHERE prior.feed = feeds.id AND prior.sequence = events.sequence - 1)
    ), sequence);

    ALTER TABLE feeds ADD COLUMN baselines INTEGER NOT NULL DEFAULT 0;  -- how often all was stored, or stored otherwise

    -- Where a sink began, or began again, in a feed; and how far it has been told what was stored then.
    ALTER TABLE positions ADD COLUMN origin INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE positions ADD COLUMN began_at INTEGER;
    ALTER TABLE positions ADD COLUMN lost_since INTEGER;               -- when the first event was recorded that it lost
    ALTER TABLE positions ADD COLUMN told INTEGER;                      -- records up to this row; NULL: none is to be

    ALTER TABLE blocked ADD COLUMN held INTEGER NOT NULL DEFAULT 0;     -- until an operator decides
    CREATE INDEX blocked_held ON blocked (sink) WHERE held = 1;

    -- Sinks that take nothing until they are resumed.
    CREATE TABLE pauses (sink TEXT PRIMARY KEY, paused_at INTEGER NOT NULL, reason TEXT NOT NULL) STRICT;

    -- Stored records that a sink was told of have one number, that of its origin: their keys tell them apart.
    ALTER TABLE dead_letters RENAME TO old_dead_letters;
    CREATE TABLE dead_letters (
        sink     TEXT NOT NULL,
        feed     INTEGER NOT NULL REFERENCES feeds,
        sequence INTEGER NOT NULL,
        key      TEXT NOT NULL,
        attempts INTEGER NOT NULL,
        died_at  INTEGER NOT NULL,
        error    TEXT NOT NULL,
        PRIMARY KEY (sink, feed, sequence, key)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO dead_letters SELECT * FROM old_dead_letters;
    DROP TABLE old_dead_letters;
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
    """,
    """
    ALTER TABLE life ADD COLUMN copied_at INTEGER;                      -- this is a backup, made then

    -- How each relay last found its receiver, written whenever that changes.
    CREATE TABLE conditions (
        sink      TEXT PRIMARY KEY,
        condition TEXT NOT NULL,
        since     INTEGER NOT NULL,
        reason    TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;

    -- Members that are never stored: of which nothing is stored any more; and how far the others are removed.
    ALTER TABLE feeds ADD COLUMN dropped TEXT NOT NULL DEFAULT '[]';    -- JSON array of pointers
    ALTER TABLE feeds ADD COLUMN cleaning TEXT;                         -- JSON object, see cleaning.py; NULL: all are

    ALTER TABLE wishes ADD COLUMN key TEXT NOT NULL DEFAULT '';         -- of the record that is meant

    ALTER TABLE runs ADD COLUMN sent_at INTEGER;                        -- our time of its first request

    -- When the change was made, as its record says, by our clock; NULL: it does not say.
    ALTER TABLE events ADD COLUMN made_at INTEGER;
    ALTER TABLE details ADD COLUMN made_at INTEGER;
    """,
    """
    ALTER TABLE feeds ADD COLUMN boundary INTEGER;                      -- S0 by the records' own clock; NULL: not known
    ALTER TABLE records ADD COLUMN missing_at INTEGER;                  -- first not found when it was asked for
    CREATE INDEX records_suspected ON records (feed) WHERE suspected_at IS NOT NULL;
    """,
    """
    -- When a blocked key's next attempt was planned; NULL: it is due at once.
    ALTER TABLE blocked ADD COLUMN planned_at INTEGER;

    -- What is to be known of a sink's receiver after a restart.
    CREATE TABLE receivers (
        sink     TEXT PRIMARY KEY,
        asked_at INTEGER,                             -- when it asked to be left alone; NULL: it has not
        until    INTEGER,                             -- for how long
        hurried  INTEGER NOT NULL DEFAULT 0,          -- how often an operator had what waits sent at once
        decided  INTEGER NOT NULL DEFAULT 0           -- and decided what becomes of dead letters
    ) STRICT, WITHOUT ROWID;
    """,
    """
    -- Words: a column is called what the program calls it.
    ALTER TABLE feeds RENAME COLUMN signature TO read_settings;
    ALTER TABLE feeds RENAME COLUMN habits TO listing_profile;
    ALTER TABLE feeds RENAME COLUMN held TO suspended;
    ALTER TABLE positions RENAME COLUMN told TO backfilled_to;
    ALTER TABLE checkpoints RENAME COLUMN walk TO run;
    ALTER TABLE wishes RENAME TO commands;
    ALTER TABLE commands RENAME COLUMN wish TO kind;

    -- Rows are numbered per feed. Those that are there keep their number, which other processes and checkpoints know;
    -- the next ones follow after the highest of all feeds, so that a checkpoint takes them for new.
    ALTER TABLE feeds ADD COLUMN last_row INTEGER NOT NULL DEFAULT 0;
    UPDATE feeds SET last_row = (SELECT coalesce(max(id), 0) FROM records);

    ALTER TABLE feeds ADD COLUMN token INTEGER NOT NULL DEFAULT 0;
    DROP INDEX records_gone;
    DROP INDEX records_suspected;
    ALTER TABLE records RENAME TO old_records;
    CREATE TABLE records (
        feed         INTEGER NOT NULL REFERENCES feeds,
        row          INTEGER NOT NULL,
        key          TEXT NOT NULL,
        raw_hash     BLOB NOT NULL,
        fingerprint  BLOB NOT NULL,
        modified     INTEGER,
        revision     INTEGER NOT NULL,
        suspected_at INTEGER,
        there_at     INTEGER,
        gone_at      INTEGER,
        superseded   BLOB,
        ignored_until_seen INTEGER NOT NULL DEFAULT 0,
        absences     INTEGER NOT NULL DEFAULT 0,
        held         INTEGER NOT NULL DEFAULT 0,
        missing_at   INTEGER,
        PRIMARY KEY (feed, row),
        UNIQUE (feed, key)
    ) STRICT;
    CREATE INDEX records_gone ON records (feed, gone_at) WHERE gone_at IS NOT NULL;
    CREATE INDEX records_suspected ON records (feed, row) WHERE suspected_at IS NOT NULL;
    INSERT INTO records SELECT feed, id, key, raw_hash, fingerprint, modified, revision, suspected_at, there_at,
        gone_at, superseded, dormant, absences, held, missing_at FROM old_records ORDER BY id;

    ALTER TABLE bodies RENAME TO old_bodies;
    CREATE TABLE bodies (
        feed INTEGER NOT NULL,
        row  INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (feed, row),
        FOREIGN KEY (feed, row) REFERENCES records
    ) STRICT;
    INSERT INTO bodies SELECT feed, id, body FROM old_bodies JOIN old_records ON id = record ORDER BY id;
    DROP TABLE old_bodies;

    ALTER TABLE holds RENAME TO old_holds;
    CREATE TABLE holds (
        feed        INTEGER NOT NULL,
        row         INTEGER NOT NULL,
        fingerprint BLOB NOT NULL,
        asked_at    INTEGER NOT NULL,
        body        BLOB NOT NULL,
        PRIMARY KEY (feed, row),
        FOREIGN KEY (feed, row) REFERENCES records
    ) STRICT;
    INSERT INTO holds SELECT feed, id, old_holds.fingerprint, asked_at, body
        FROM old_holds JOIN old_records ON id = record;
    DROP TABLE old_holds;

    DROP INDEX details_queue;
    DROP INDEX details_age;
    ALTER TABLE details RENAME TO old_details;
    CREATE TABLE details (
        feed      INTEGER NOT NULL,
        row       INTEGER NOT NULL,
        key       TEXT NOT NULL,
        body      BLOB NOT NULL,
        kind      TEXT NOT NULL,
        since     INTEGER,
        until     INTEGER NOT NULL,
        modified  INTEGER,
        late      INTEGER NOT NULL,
        via       TEXT NOT NULL,
        is_first  INTEGER NOT NULL,
        queued_at INTEGER NOT NULL,
        attempts  INTEGER NOT NULL DEFAULT 0,
        made_at   INTEGER,
        PRIMARY KEY (feed, row),
        FOREIGN KEY (feed, row) REFERENCES records
    ) STRICT;
    INSERT INTO details SELECT feed, record, key, body, kind, since, until, modified, late, via, is_first, queued_at,
        attempts, made_at FROM old_details;
    DROP TABLE old_details;
    CREATE INDEX details_queue ON details (feed, attempts, queued_at);
    CREATE INDEX details_age ON details (feed, queued_at);

    DROP TABLE old_records;
    """,
    """
    ALTER TABLE feeds ADD COLUMN plan TEXT NOT NULL DEFAULT '';
    """,
    """
    -- When a change became visible, whatever tells it: not only where its record says when it was made.
    ALTER TABLE events RENAME COLUMN made_at TO visible_at;
    ALTER TABLE details RENAME COLUMN made_at TO visible_at;
    """,
    """
    CREATE TABLE delays (
        began_at  INTEGER NOT NULL,
        feed      INTEGER NOT NULL REFERENCES feeds,
        sink      TEXT NOT NULL,
        buckets   TEXT NOT NULL,
        waited    INTEGER NOT NULL,
        predicted INTEGER,
        PRIMARY KEY (began_at, feed, sink)
    ) STRICT, WITHOUT ROWID;
    """,
    """
    ALTER TABLE feeds ADD COLUMN signal TEXT NOT NULL DEFAULT '';
    """,
    """
    ALTER TABLE life ADD COLUMN moved_to TEXT NOT NULL DEFAULT '';
    """,
    """
    ALTER TABLE dead_letters ADD COLUMN answer TEXT NOT NULL DEFAULT '';
    CREATE TABLE attempts (
        id        INTEGER PRIMARY KEY,
        sink      TEXT NOT NULL,
        feed      INTEGER NOT NULL REFERENCES feeds,
        key       TEXT NOT NULL,
        sequence  INTEGER NOT NULL,
        number    INTEGER NOT NULL,
        began_at  INTEGER NOT NULL,
        took      INTEGER NOT NULL,
        verdict   TEXT NOT NULL,
        error     TEXT NOT NULL,
        status    INTEGER,
        answer    TEXT NOT NULL,
        next_at   INTEGER,
        is_replay INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX attempts_key ON attempts (feed, key);
    """,
    """
    ALTER TABLE feeds ADD COLUMN approved_at INTEGER;
    """,
)
