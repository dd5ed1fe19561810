-- A journal that toolexec wrote before it had queues: version 1 of the tables.
PRAGMA application_id=1954040434;
PRAGMA user_version=1;
BEGIN TRANSACTION;
CREATE TABLE calls (id INTEGER PRIMARY KEY, run INTEGER NOT NULL, step TEXT NOT NULL, tool TEXT NOT NULL,
    definition TEXT NOT NULL, args TEXT NOT NULL, state TEXT NOT NULL, sent TEXT NOT NULL, place TEXT NOT NULL,
    began REAL NOT NULL, ended REAL, outcome TEXT, mark INTEGER NOT NULL, outcome_mark INTEGER);
INSERT INTO "calls" VALUES(4294967297,1,'0','fx:add','d','a','done','','',1700000003.0,1700000010.0,'{"value":3}',3285546518,4119301747);
INSERT INTO "calls" VALUES(8589934593,2,'0','fx:add','d','a','begun','','',1700000006.0,NULL,NULL,3285546518,NULL);
INSERT INTO "calls" VALUES(12884901889,3,'0','fx:add','d','a','begun','','',1700000009.0,NULL,NULL,3285546518,NULL);
CREATE TABLE deliveries (run INTEGER NOT NULL, number INTEGER NOT NULL, answers TEXT NOT NULL, mark INTEGER NOT NULL,
    PRIMARY KEY (run, number)) WITHOUT ROWID;
CREATE TABLE programs (run INTEGER PRIMARY KEY, source TEXT NOT NULL, settings TEXT NOT NULL, mark INTEGER NOT NULL,
    result TEXT, result_mark INTEGER);
INSERT INTO "programs" VALUES(1,'[]','{"given":{}}',382057890,'{"value":3}',3722936400);
INSERT INTO "programs" VALUES(2,'[]','{"given":{}}',382057890,NULL,NULL);
INSERT INTO "programs" VALUES(3,'[]','{"given":{}}',382057890,NULL,NULL);
CREATE TABLE runs (num INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, digest TEXT NOT NULL,
    caller TEXT NOT NULL, state TEXT NOT NULL, created REAL NOT NULL UNIQUE, updated REAL NOT NULL,
    owner TEXT NOT NULL, wake REAL, cancel INTEGER NOT NULL, waits TEXT NOT NULL, calls INTEGER NOT NULL);
INSERT INTO "runs" VALUES(1,'done','chain','d','','done',1700000001.0,1700000011.0,'',NULL,0,'',1);
INSERT INTO "runs" VALUES(2,'waits','chain','d','','waiting',1700000004.0,1700000012.0,'',1900000000.0,0,'[["0","signal","go",null,1900000000.0,0.0]]',1);
INSERT INTO "runs" VALUES(3,'lost','chain','d','','running',1700000007.0,1700000009.0,'m-1-1/a',1700000038.0,0,'',1);
CREATE TABLE signals (seq INTEGER PRIMARY KEY, run INTEGER NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL,
    payload TEXT NOT NULL, sent REAL NOT NULL, sender TEXT NOT NULL, taken_by TEXT NOT NULL, mark INTEGER NOT NULL,
    UNIQUE (run, id));
CREATE TABLE snapshots (run INTEGER PRIMARY KEY, calls INTEGER NOT NULL, state TEXT NOT NULL, mark INTEGER NOT NULL);
CREATE INDEX runs_by_state ON runs (state, created);
CREATE INDEX runs_by_caller ON runs (caller, state, created);
CREATE INDEX runs_by_wake ON runs (wake) WHERE wake IS NOT NULL;
CREATE INDEX runs_by_owner ON runs (owner) WHERE owner <> '';
CREATE UNIQUE INDEX calls_by_step ON calls (run, step);
COMMIT;
