// Package store is the contract between the state service and its database. It reads
// and writes rows and has no rules. The rules are in package session.
//
// An implementation loads the sessions of a command, keeps other writers away from
// them, and writes the changes of the command in one transaction. Transactions, locks,
// retries and batches are hidden from callers: commands that arrive at the same time
// are written together (package group).
//
// When Update or UpdateDue returns nil, the change is durable: it survives a crash of
// the process at any later instruction. (A database in memory, for tests, lives as long
// as the process.) A store that cannot be reached returns Unavailable
// (STORE_UNAVAILABLE): either nothing was written, or everything was and the answer was
// lost. A caller that repeats the command learns which.
//
// All methods may be called concurrently. Results belong to the caller, and arguments
// are not retained.
package store

import (
	"cmp"
	"context"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/governor"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// Store is the whole contract: one database behind small interfaces. Callers take the
// parts that they use.
type Store struct {
	Updater
	Reader
	Registry
	Lister
	Accounts
	Memories
	Files
	Governors
	StoredAgents
	Counts
	AuditLog
	Erasures
	Outbox
	io.Closer

	// Blobs is where the bytes of files are by default: in the same database.
	Blobs Blobs

	// Signals carries signals between the replicas that share the store; nil for a
	// store of a single process.
	Signals Signaler
}

// Signaler carries signals between the replicas that share a store. A signal is only a
// wake-up: it may be lost, late or repeated, and its cause is in the
// rows.
type Signaler interface {
	// Signal sends signals to all other listening replicas. A signal has at most
	// 4 KiB and no zero characters.
	Signal(ctx context.Context, signals []string) error

	// Listen calls receive with each signal of the other replicas, one at a time. It
	// returns an error when ctx ends or the connection fails.
	Listen(ctx context.Context, receive func(signal string)) error
}

// Decide is a command of package session: a pure function from the loaded sessions to
// the change of each. It may be called several times for one Update; only the last
// call counts. A nil change writes nothing in its session, and a nil slice writes
// nothing at all. An error writes nothing and is returned unchanged.
type Decide func([]*session.View) ([]*session.Change, error)

// DecideDue is a command on one due run.
type DecideDue func(*session.View) (*session.Change, error)

// Updater runs commands.
type Updater interface {
	// Update loads the sessions of the targets, calls decide with them in the order
	// of the targets, and writes all changes or none. There is at least one target,
	// and each names another session, of any tenant. bytes estimates the memory that
	// the command holds while it waits.
	//
	// Exhausted (QUEUE_FULL): too many commands wait, and nothing was written.
	Update(ctx context.Context, targets []session.Target, bytes int, decide Decide) error

	// UpdateDue finds at most limit due runs, calls decide with a view for each, and
	// writes the changes. View.Run is the due run, and View.OwnerUnregistered is always
	// set. It returns the changes in the order of the runs.
	//
	// It skips sessions that another UpdateDue is working on. So two callers never
	// get the same run, and an empty result does not mean that no run is due.
	UpdateDue(ctx context.Context, due Due, need session.Need, limit int, decide DecideDue) ([]Decided, error)
}

// Decided is a written change, and the view before it.
type Decided struct {
	View   *session.View
	Change *session.Change
}

// Due selects due runs: Queued, Orphaned, Unserved, OwnerUnregistered or LostClaims.
type Due interface{ due() }

// Queued selects queued runs of the agents whose due time is not after Now. The tenants
// take turns in the order of their names, beginning with what is Left of the turn of
// After. A tenant's turn is its first run, or as many as its weight: the highest priority comes
// first, then the oldest. It selects none for an unregistered executor, and none above a
// cap. Callers with equal caps keep them together, whatever runs at once.
type Queued struct {
	ExecutorID string
	AgentTypes []string
	Now        session.Millis
	After      string           // tenant; empty for the first turn
	Left       int64            // runs
	Weights    map[string]int64 // by tenant, above 0; 1 for others
	Caps       *Caps            // nil for none
}

// Orphaned selects queued runs of agents that no registered executor announces, as far
// as they can end without their agent: with a requested stop, or with a deadline that
// is not after Now. Their due time is not after Now either. They are roughly in the
// order of their age. It selects none for an unregistered executor.
type Orphaned struct {
	ExecutorID string
	Now        session.Millis
}

// Unserved selects queued runs of the agents, as far as no registered executor announces these. The
// runs were created, and last claimed, not after QueuedBefore, and their due time is not after Now. They are
// in no order. It selects none for an unregistered executor.
type Unserved struct {
	ExecutorID   string
	AgentTypes   []string
	QueuedBefore session.Millis
	Now          session.Millis
}

// OwnerUnregistered selects running runs of unregistered executors, in no order.
type OwnerUnregistered struct{}

// LostClaims selects running runs that the executor claimed before a time and does not
// execute, in no order.
type LostClaims struct {
	ExecutorID    string
	HeldRunIDs    []string       // the ids of the runs that it executes
	ClaimedBefore session.Millis // exclusive
}

func (Queued) due()            {}
func (Orphaned) due()          {}
func (Unserved) due()          {}
func (OwnerUnregistered) due() {}
func (LostClaims) due()        {}

// Reader reads one session. Each result is a consistent snapshot. NotFound
// (SESSION_NOT_FOUND).
type Reader interface {
	// OwnedBy returns a reader that finds only the sessions of the user; all sessions for
	// an empty user.
	OwnedBy(user string) Reader

	// Session returns the session with its current run, calls, children and waiting
	// runs.
	Session(ctx context.Context, key session.Key) (*Snapshot, error)

	// Run returns a run. NotFound (RUN_NOT_FOUND).
	Run(ctx context.Context, key session.Key, runID string) (*session.Run, error)

	// Runs returns at most limit started runs, the newest first, without
	// their outputs. Unless beforeTurn is 0, their turns are below it.
	Runs(ctx context.Context, key session.Key, beforeTurn int32, limit int) ([]session.Run, error)

	// Waiting returns the waiting runs in the order of the queue.
	Waiting(ctx context.Context, key session.Key) ([]session.Run, error)

	// Messages returns a page of the conversation, and the number of all messages of
	// the session.
	Messages(ctx context.Context, key session.Key, page Page) ([]session.Message, int64, error)

	// StoreEntries returns a page of the session's private store in the order of the keys' bytes, and whether more
	// entries follow.
	StoreEntries(ctx context.Context, key session.Key, q StoreQuery) (page []StoredEntry, more bool, err error)

	// Checkpoint returns a checkpoint and its custom state. An empty id is the newest
	// checkpoint. NotFound (CHECKPOINT_NOT_FOUND).
	Checkpoint(ctx context.Context, key session.Key, id string) (*session.Checkpoint, string, error)

	// Checkpoints returns at most limit checkpoints after the first offset, the
	// newest first, and the number of all checkpoints of the session. Unless
	// beforeStep is 0, their steps are below it.
	Checkpoints(ctx context.Context, key session.Key, beforeStep int32, offset, limit int) ([]session.Checkpoint, int64, error)

	// Steps returns a page of the committed steps.
	Steps(ctx context.Context, key session.Key, page StepPage) (*Steps, error)

	// Owners returns the ids of the sessions that own the calls, by call id. It finds
	// calls of the session's family only, and omits the others.
	Owners(ctx context.Context, key session.Key, callIDs []string) (map[string]string, error)

	// Family returns the session and all sub-sessions below it, at most limit. A
	// parent comes before its children.
	Family(ctx context.Context, key session.Key, limit int) ([]session.Key, error)

	// UsageEntries returns a page of the session's usage, by time, run, step and
	// position. No kinds selects all kinds.
	UsageEntries(ctx context.Context, key session.Key, kinds []session.UsageKind, offset, limit int) ([]session.UsageEntry, error)
}

// Snapshot is a consistent view of a session.
type Snapshot struct {
	Session      session.Session // with its custom state
	Current      *session.Run    // the newest run; nil before the first
	AwaitedCalls int             // how many calls of the whole family await an answer of a client; calls that outlived a failed run do not count
	Calls        []session.Call  // not consumed; for a root, those of the whole family; by creation time, then id
	Children     []session.Child // by session id
	Waiting      []session.Run   // in the order of the queue
}

// Page is a range of a conversation. It has at most Limit messages, and their bodies
// at most MaxBytes in total. The first message is included whatever its size.
type Page struct {
	From     int64 // an ordinal
	Limit    int
	MaxBytes int
}

// StoreQuery selects entries of a private store: those of Keys, or a range if Keys is nil. They have at most MaxBytes in
// total; the first is included whatever its size.
type StoreQuery struct {
	Keys     []string
	Prefix   string // of the keys of the range
	After    string // the range begins after this key; empty for the first
	Limit    int    // of a range; at least 1
	MaxBytes int
	KeysOnly bool // without values, which then have no bytes
}

// StoredEntry is an entry of a private store.
type StoredEntry struct {
	session.StoreEntry
	Bytes int64 // of the key and the value
}

// Range returns the bounds of the keys: from the first, and before the second.
func (q StoreQuery) Range() (from, before string) {
	const (
		next = "\x01" // a key has no control characters, so nothing lies between a key and the key with this suffix
		last = "\U0010FFFF"
	)
	from, before = q.Prefix, strings.Repeat(last, session.MaxStoreKey/len(last)+1)
	if q.After >= from && q.After != "" {
		from = q.After + next
	}
	for prefix := []rune(q.Prefix); len(prefix) > 0; prefix = prefix[:len(prefix)-1] {
		if r := &prefix[len(prefix)-1]; *r < unicode.MaxRune {
			*r++
			if utf16.IsSurrogate(*r) {
				*r = surrogatesEnd
			}
			return from, string(prefix)
		}
	}
	return from, before
}

// surrogatesEnd is the first character behind those that UTF-8 cannot encode.
const surrogatesEnd = 0xE000

// StepPage is a range of the steps of a session. It has at most Limit steps, and their
// records and messages at most MaxBytes in total. The first step is included whatever
// its size.
type StepPage struct {
	After    int32  // steps above this one
	RunID    string // only steps of this run; empty for all
	Limit    int    // at least 1
	MaxBytes int
}

// Steps is a page of steps with their session, a consistent snapshot.
type Steps struct {
	Session  session.Session // without its custom state
	Current  *session.Run    // the newest run; nil before the first
	Page     []session.StoredStep
	Runs     []session.Run // the runs of the page, in the order of their first steps, without outputs
	More     bool          // more steps follow
	LastStep int32         // the highest stored step up to StepPage.After; 0 for none
}

// Lister finds sessions by index. Each result is a consistent snapshot.
type Lister interface {
	// Sessions returns a page of the tenant's sessions, without their custom states
	// and outputs. The newest come first; at the same creation time, the higher id by
	// bytes.
	Sessions(ctx context.Context, tenant string, q SessionQuery) ([]session.Session, error)

	// CountSessions counts the sessions of the query, whatever its After, Offset and Limit. It stops at most, unless
	// most is 0.
	CountSessions(ctx context.Context, tenant string, q SessionQuery, most int) (int64, error)

	// OpenCalls returns a page of the tenant's calls that wait for an answer of a client. The
	// oldest come first, then the lower ids of the root and of the call by bytes. next is the place
	// after which the following page begins; nil if there is none. A page may be short, even empty,
	// because of MaxBytes and MaxScanned.
	OpenCalls(ctx context.Context, tenant string, q CallQuery) (page []OpenCall, next *CallPlace, err error)

	// Overdue returns at most limit sessions with an open call whose deadline is not
	// after now, the earliest deadline first.
	Overdue(ctx context.Context, now session.Millis, limit int) ([]session.Key, error)

	// Expired returns at most limit sessions whose ExpiresAt is set and not after now,
	// the earliest first. Completed and failed sessions do not expire.
	Expired(ctx context.Context, now session.Millis, limit int) ([]session.Key, error)
}

// SessionQuery selects a page of sessions. The zero value of a field is no condition.
type SessionQuery struct {
	All    []session.Facet // the session has all of these
	Any    []session.Facet // the session has at least one of these
	From   session.Millis  // created at this time or later
	Before session.Millis  // created before this time
	After  *SessionPlace   // the page begins after this place
	Offset int
	Limit  int // at least 1
}

// SessionPlace is a place in a list of sessions.
type SessionPlace struct {
	CreatedAt session.Millis
	SessionID string
}

// CallQuery selects a page of open calls. The zero value of a field is no condition.
type CallQuery struct {
	UserID    string // of sessions of this user
	AgentType string // of sessions of this agent
	ToolName  string
	Kind      session.CallKind
	// ApprovableBy selects the calls of others (session.ApproversOthers) that another identified actor
	// than this one has started.
	ApprovableBy string
	After        CallPlace // the page begins after this place
	Limit        int       // at least 1
	MaxBytes     int       // of inputs, stashes and results together; the first call is included whatever its size
	// MaxScanned bounds the calls examined for a page with filters. It does not bound the calls of
	// one user.
	MaxScanned int
}

// Next returns the place after which the page after this one begins. last is the place of the last
// examined call, nil if all were examined; found is how many calls meet the query, at most Limit+1.
func (q CallQuery) Next(page []OpenCall, found int, last *CallPlace) *CallPlace {
	if n := len(page); n > 0 && n < found {
		place := page[n-1].Place()
		return &place
	}
	return last
}

// Scans reports whether the query may examine many calls for a short page.
func (q CallQuery) Scans() bool {
	return q.UserID == "" && (q.ApprovableBy != "" || q.AgentType != "" || q.ToolName != "" || q.Kind != "")
}

// CallPlace is a place in a list of open calls.
type CallPlace struct {
	CreatedAt session.Millis
	RootID    string
	CallID    string
}

// Compare orders places as lists do.
func (p CallPlace) Compare(other CallPlace) int {
	return cmp.Or(cmp.Compare(p.CreatedAt, other.CreatedAt), cmp.Compare(p.RootID, other.RootID), cmp.Compare(p.CallID, other.CallID))
}

// OpenCall is an open call with properties of its session.
type OpenCall struct {
	session.Call
	RootID    string
	AgentType string
	UserID    string
}

// Place returns the place of the call.
func (c OpenCall) Place() CallPlace { return CallPlace{c.CreatedAt, c.RootID, c.CallID} }

// Accounts reads usage. Commands write its entries.
type Accounts interface {
	// UsageSums adds entries up by bucket, kind, source, model, tool, type and name,
	// and returns at most limit sums, sorted by these.
	UsageSums(ctx context.Context, tenant string, q UsageQuery, limit int) ([]UsageSum, error)
}

// UsageQuery selects entries. The zero value of a field is no condition.
type UsageQuery struct {
	Sessions  []string // of these sessions
	Family    string   // of this session and all sub-sessions below it
	RunID     string
	UserID    string // of the sessions of this user
	AgentType string // of the sessions of this agent
	Kinds     []session.UsageKind
	Models    []string
	From      session.Millis // recorded at this time or later
	Before    session.Millis // recorded before this time
	Bucket    session.Millis // the length of a bucket; 0 for one bucket
}

// UsageSum is the sum of the entries of a group.
type UsageSum struct {
	Bucket  session.Millis // the start of the bucket, a multiple of its length; 0 for one bucket
	Usage   session.Usage  // Kind, Source, Model, Tool, Type and Name of the group; the numbers are sums
	Count   int64
	Success int64 // the number of entries with Success
	First   session.Millis
	Last    session.Millis
}

// Counts measures what the quotas of a tenant bound.
type Counts interface {
	// PendingRuns counts the queued and waiting runs of a tenant, or of one user if user is not empty. It stops at
	// most.
	PendingRuns(ctx context.Context, tenant, userID string, most int64) (int64, error)

	// QueuedRuns returns the queued runs of a tenant by agent type. It reads at most so many of them.
	QueuedRuns(ctx context.Context, tenant string, most int64) (map[string]QueuedRuns, error)

	// RunningRuns counts the running runs of a tenant, or of one user if userID is not empty.
	RunningRuns(ctx context.Context, tenant, userID string) (int64, error)

	// StoredBytes returns the sizes of the messages and files of a tenant together. It reads all of
	// them.
	StoredBytes(ctx context.Context, tenant string) (int64, error)

	// Backlog returns what waits at the time, of all tenants. It reads at most so many queued runs, and so many
	// sessions that expire later, the first to expire first.
	Backlog(ctx context.Context, now session.Millis, most int64) (Backlog, error)
}

// QueuedRuns are the queued runs of one agent.
type QueuedRuns struct {
	Runs   int64
	Oldest session.Millis // since when the oldest of them is queued
}

// Backlog is what waits in the database.
type Backlog struct {
	Queued       int64          // due runs
	OldestQueued session.Millis // since when the oldest of them is due; 0 for none

	// Suspended has the suspended sessions that expire later, by each status of a suspended session.
	Suspended map[session.Status]SuspendedSessions
}

// SuspendedSessions are the suspended sessions of one status.
type SuspendedSessions struct {
	Sessions int64
	Oldest   session.Millis // the earliest last change; 0 for none
}

// Memories stores facts that outlive sessions.
type Memories interface {
	// Remember adds a record, or replaces the record with the same id but for its
	// CreatedAt. It reports whether it has added one.
	Remember(ctx context.Context, tenant string, m session.Memory) (added bool, err error)

	// Memory returns a record. NotFound (MEMORY_NOT_FOUND).
	Memory(ctx context.Context, tenant, id string) (*session.Memory, error)

	// Recall returns the records with at least one of the words. Records with more
	// words come first, then the last updated, then the lower id. A query without
	// words returns all records, the last updated first.
	Recall(ctx context.Context, tenant string, q MemoryQuery) ([]Recalled, error)

	// ForgetMemory deletes a record. It reports whether there was one.
	ForgetMemory(ctx context.Context, tenant, id string) (bool, error)

	// Entities returns at most limit pairs of entity and source with the number of
	// their records, sorted, after the pair after.
	Entities(ctx context.Context, tenant string, after EntityCount, limit int) ([]EntityCount, error)
}

// MemoryQuery selects records. The zero value of a field is no condition.
type MemoryQuery struct {
	Words    []string // distinct, as session.SearchWords returns them
	EntityID string
	Source   string
	MinHits  int // the least number of words that a record has
	Limit    int // at least 1
}

// Recalled is a record and its number of matching words.
type Recalled struct {
	session.Memory
	Hits int
}

// EntityCount is the number of records of an entity from a source.
type EntityCount struct {
	EntityID string
	Source   string
	Count    int64
}

// Files stores the descriptions of files, and which sessions refer to them.
//
// A file exists as long as a link to it. Adding or finding a file holds it: it makes a link
// that expires at a time. A written message links its session to its files. When the session is deleted,
// its links expire at once, and the holds of these files with them: File and FilesByID do not find a file
// that no other session refers to. DeleteExpiredLinks deletes expired links, and a file without links.
//
// Bytes are stored before their description and deleted after it. So that a crash loses none,
// their deletion is scheduled before they are stored, and unscheduled with the description.
type Files interface {
	// ScheduleBlobDeletion schedules the deletion of the bytes of a file that is about to be
	// stored, should it not be added.
	ScheduleBlobDeletion(ctx context.Context, key session.FileKey, at session.Millis) error

	// AddFile adds a file with stored bytes, and holds it. If the tenant has the same bytes with
	// this media type, it holds and returns that file, and the new bytes are due for deletion.
	// Unavailable (UPLOAD_EXPIRED): the deletion of the bytes has started.
	AddFile(ctx context.Context, tenant string, f session.File, hold session.Millis) (*session.File, error)

	// FindFile returns the file with these bytes and this media type, and holds it. NotFound
	// (FILE_NOT_FOUND).
	FindFile(ctx context.Context, tenant string, digest []byte, mediaType string, hold session.Millis) (*session.File, error)

	// File returns a file by its id alone, with its tenant. NotFound (FILE_NOT_FOUND).
	File(ctx context.Context, id string) (tenant string, f *session.File, err error)

	// FilesByID returns the tenant's files with the ids, in no order. It omits unknown ones.
	FilesByID(ctx context.Context, tenant string, ids []string) ([]session.File, error)

	// FilesOf returns the files with the ids that the session's messages have had, in no order.
	FilesOf(ctx context.Context, key session.Key, ids []string) ([]session.File, error)

	// FilesWithExpiredLinks returns at most limit files with a link that expired at now or earlier, of a tenant
	// or of all if it is empty. A file may appear twice.
	FilesWithExpiredLinks(ctx context.Context, tenant string, now session.Millis, limit int) ([]session.FileKey, error)

	// DeleteExpiredLinks deletes the expired links of a file, and the file if it has no others. It reports
	// whether it has deleted the file, whose bytes are then due for deletion.
	DeleteExpiredLinks(ctx context.Context, key session.FileKey, now session.Millis) (deleted bool, err error)

	// DueBlobDeletions returns at most limit files whose bytes are due for deletion, the longest
	// due first, of a tenant or of all if it is empty.
	DueBlobDeletions(ctx context.Context, tenant string, now session.Millis, limit int) ([]session.FileKey, error)

	// StartBlobDeletion claims a due deletion, before the bytes are deleted. It reports
	// false if another replica has claimed it, or it is not scheduled. AddFile refuses the file from
	// then on. A deletion that does not end is due again at retry.
	StartBlobDeletion(ctx context.Context, key session.FileKey, now, retry session.Millis) (started bool, err error)

	// BlobDeleted removes a completed deletion from the schedule.
	BlobDeleted(ctx context.Context, key session.FileKey) error
}

// AuditLog stores who did what. Nothing changes an entry, and age alone deletes it.
type AuditLog interface {
	// RecordAudit adds events of the tenant. It skips those whose session and id exist already.
	RecordAudit(ctx context.Context, tenant string, events []session.AuditEvent) error

	// AuditEvents returns a page of events.
	AuditEvents(ctx context.Context, tenant string, q AuditQuery) ([]session.AuditEvent, error)

	// ExpireAudit deletes at most limit events of all tenants from before a time, the oldest first. It
	// returns their number.
	ExpireAudit(ctx context.Context, before session.Millis, limit int) (int64, error)
}

// AuditQuery selects events, the newest first. The zero value of a field is no condition.
type AuditQuery struct {
	SessionID   string
	Actor       string
	Action      string
	From        session.Millis // at this time or later
	Before      session.Millis // exclusive
	After       *AuditPlace    // the page begins after this place
	OldestFirst bool
	Limit       int // at least 1
}

// AuditPlace is a place in the order of events.
type AuditPlace struct {
	At session.Millis
	ID string
}

// Erasures removes everything outside of sessions, and remembers the live logs to remove.
type Erasures interface {
	// ForgetMemories deletes at most limit memories of an entity, or of the whole tenant if the
	// entity is empty. It returns their number.
	ForgetMemories(ctx context.Context, tenant, entityID string, limit int) (int64, error)

	// ExpireUploads expires all holds of a tenant's files, and makes the deletion of bytes due that
	// are stored for uploads. An upload that has not ended fails.
	ExpireUploads(ctx context.Context, tenant string) error

	// DueLogErasures returns at most limit live logs to remove, the longest due first: those of a
	// tenant, due or not, or the due ones of all tenants if the tenant is empty.
	DueLogErasures(ctx context.Context, tenant string, now session.Millis, limit int) ([]session.LogErasure, error)

	// MergeLogErasures replaces a tenant's erasures by one for the whole tenant.
	MergeLogErasures(ctx context.Context, tenant string, due session.Millis) error

	// LogsErased removes completed erasures. It keeps the ones with a new DueAt.
	LogsErased(ctx context.Context, done []session.LogErasure) error
}

// Blobs stores the bytes of files. Package blobtest is its conformance suite.
type Blobs interface {
	// PutBlob stores the bytes of a reader under a new key. They are durable when it returns
	// nil. After an error a part of them may be stored. It holds about a megabyte in memory, or
	// what an object store needs for one part.
	PutBlob(ctx context.Context, key session.FileKey, from io.Reader) error

	// ReadBlob calls each with the bytes from the offset on, at most length bytes in pieces of at
	// most a megabyte. It keeps nothing busy while each waits. NotFound (BLOB_NOT_FOUND): the
	// bytes are missing, maybe from some place on. An error of each ends it.
	ReadBlob(ctx context.Context, key session.FileKey, offset, length int64, each func([]byte) error) error

	// DeleteBlob deletes the bytes, if there are any.
	DeleteBlob(ctx context.Context, key session.FileKey) error
}

// Governors stores what the calls of models have used.
type Governors interface {
	// UpdateGovernors calls decide with the governors of the names, in their order, and writes what
	// it has changed, all or nothing. The names are distinct. Lease is the one of the id. Concurrent
	// calls with a common name wait for each other. Leases that have expired at now, and those of
	// executors that are not registered, are deleted first. A crash of the database may lose the
	// last changes.
	UpdateGovernors(ctx context.Context, names []string, leaseID string, now governor.Millis, decide func([]*governor.Governor)) error
}

// BlobPiece is the largest piece of a blob in memory, in bytes.
const BlobPiece = 1 << 20

// FileNotFound is the fault of an unknown file: NotFound (FILE_NOT_FOUND).
func FileNotFound() error {
	return fault.New(fault.NotFound, "FILE_NOT_FOUND", "a file is not known, or was deleted; upload it again")
}

// UploadExpired is the fault of an upload too slow to store: Unavailable (UPLOAD_EXPIRED).
func UploadExpired() error {
	return fault.New(fault.Unavailable, "UPLOAD_EXPIRED", "storing the file took too long; send it again")
}

// BlobNotFound is the fault of missing bytes: NotFound (BLOB_NOT_FOUND).
func BlobNotFound() error {
	return fault.New(fault.NotFound, "BLOB_NOT_FOUND", "the bytes of the file are missing from the store")
}

// Registry stores executors, when they were last seen, and their agents.
type Registry interface {
	// Announce registers an executor with its agents and problems, or replaces its registration.
	// Agents are never deleted. The last description of an agent wins.
	Announce(ctx context.Context, executorID string, agents []session.Agent, now session.Millis, problems ...session.Problem) error

	// Problems returns the problems of each registered executor, by executor.
	Problems(ctx context.Context) (map[string][]session.Problem, error)

	// Heartbeat records a heartbeat of the executor. It reports false, and does nothing, when
	// the executor is not registered.
	Heartbeat(ctx context.Context, executorID string, now session.Millis) (known bool, err error)

	// Stops returns the running runs of the executors with a requested stop, by run
	// id. It reads no other runs, and so may be called often.
	Stops(ctx context.Context, executorIDs ...string) ([]StoppedRun, error)

	// UnregisterSilent unregisters executors last seen before the time, and
	// returns their number.
	UnregisterSilent(ctx context.Context, seenBefore session.Millis) (int, error)

	// LastSeen returns when each registered executor was last seen.
	LastSeen(ctx context.Context) (map[string]session.Millis, error)

	// UnregisterUnseen unregisters the executors not seen since: LastSeen
	// still returns the same time for them. It compares no clocks. An executor
	// whose heartbeat is being written stays. It returns the unregistered ids, in no
	// order.
	UnregisterUnseen(ctx context.Context, since map[string]session.Millis) ([]string, error)

	// Agents returns all agents ever announced, by type, without session.StoredAgents.
	Agents(ctx context.Context) ([]session.Agent, error)

	// Executors returns how many registered executors announce each agent, by type. Agents without any
	// are missing.
	Executors(ctx context.Context) (map[string]int64, error)

	// Unserved returns the agents that no registered executor announces, by type, and when each was
	// last announced.
	Unserved(ctx context.Context) (map[string]session.Millis, error)
}

// StoppedRun is a run with a requested stop.
type StoppedRun struct {
	ExecutorID string
	RunID      string
	Stop       session.Stop
}

// Unavailable returns the fault of a store that cannot be reached: Unavailable
// (STORE_UNAVAILABLE). It wraps the cause for the log; the cause is not sent to callers.
func Unavailable(err error) error { return &unavailable{err} }

type unavailable struct{ cause error }

func (u *unavailable) Error() string { return "store unavailable: " + u.cause.Error() }

func (u *unavailable) Unwrap() []error {
	return []error{
		fault.New(
			fault.Unavailable,
			"STORE_UNAVAILABLE",
			"the database cannot be reached or is overloaded; send the same request again in a moment",
		),
		u.cause,
	}
}
