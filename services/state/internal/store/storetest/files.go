package storetest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// fileGrace is how long tests hold files.
const fileGrace = session.Millis(1000)

// files prove that a file lives as long as a session refers to it.
var files = []suiteCase{
	{"a file is found by its id and by its content, by its tenant", func(h *harness) {
		f := h.addFile("acme", "f1", "photo")
		tenant, got, err := h.Store.File(h.Context(), "f1")
		h.must(err)
		same(h, "tenant", tenant, "acme")
		same(h, "file", *got, f)
		got, err = h.Store.FindFile(h.Context(), "acme", f.Digest, f.MediaType, h.now)
		h.must(err)
		same(h, "file by content", *got, f)
		h.addFile("acme", "f2", "other photo")
		found, err := h.Store.FilesByID(h.Context(), "acme", []string{"f2", "f1", "f1", "unknown"})
		h.must(err)
		same(h, "files by id", len(found), 2)
		found, err = h.Store.FilesByID(h.Context(), "acme", nil)
		h.must(err)
		same(h, "no ids", len(found), 0)
		_, _, err = h.Store.File(h.Context(), "unknown")
		h.refuses(err, fault.NotFound, "FILE_NOT_FOUND")
		_, err = h.Store.FindFile(h.Context(), "other", f.Digest, f.MediaType, h.now)
		h.refuses(err, fault.NotFound, "FILE_NOT_FOUND")
		_, err = h.Store.FindFile(h.Context(), "acme", f.Digest, "image/gif", h.now)
		h.refuses(err, fault.NotFound, "FILE_NOT_FOUND")
		found, err = h.Store.FilesByID(h.Context(), "other", []string{"f1"})
		h.must(err)
		same(h, "files of another tenant", len(found), 0)
	}},
	{"the files of a session are those of its messages", func(h *harness) {
		h.addFile("acme", "f1", "photo")
		h.addFile("acme", "f2", "other photo")
		h.addFile("acme", "f3", "held by no session")
		h.start(h.startWith(home, "f1"))
		h.start(h.startWith(at("s2"), "f2"))
		for key, want := range map[session.Key]string{home: "[f1]", at("s2"): "[f2]", at("s3"): "[]",
			{Tenant: "other", SessionID: home.SessionID}: "[]"} {
			found, err := h.Store.FilesOf(h.Context(), key, []string{"f1", "f2", "f3", "unknown"})
			h.must(err)
			got := []string{}
			for _, f := range found {
				got = append(got, f.ID)
			}
			same(h, fmt.Sprint("files of ", key), fmt.Sprint(got), want)
		}
	}},
	{"a tenant has equal bytes of a media type once", func(h *harness) {
		first := h.addFile("acme", "f1", "photo")
		h.scheduleBlob("acme", "f2")
		again := first
		again.ID = "f2"
		got, err := h.Store.AddFile(h.Context(), "acme", again, h.now+fileGrace)
		h.must(err)
		same(h, "file", *got, first)
		h.expectDue(session.FileKey{Tenant: "acme", FileID: "f2"}) // its bytes
		h.addFile("other", "f3", "photo")
		again.ID, again.MediaType = "f4", "image/gif"
		h.scheduleBlob("acme", "f4")
		got, err = h.Store.AddFile(h.Context(), "acme", again, h.now+fileGrace)
		h.must(err)
		same(h, "another media type", got.ID, "f4")
	}},
	{"equal files that are added at once are one", func(h *harness) {
		for round := range 10 {
			content := fmt.Sprint("photo ", round)
			ids := make([]string, 8)
			var all sync.WaitGroup
			for i := range ids {
				id := fmt.Sprint("f", round, "-", i)
				h.scheduleBlob("acme", id)
				all.Go(func() {
					got, err := h.Store.AddFile(h.Context(), "acme", fileOf(id, content), h.now+fileGrace)
					if err != nil {
						h.Error(err)
						return
					}
					ids[i] = got.ID
				})
			}
			all.Wait()
			same(h, "different files", len(slices.Compact(ids)), 1)
		}
		due, err := h.Store.DueBlobDeletions(h.Context(), "", h.now, 1000)
		h.must(err)
		same(h, "blobs to delete", len(due), 70)
	}},
	{"a file whose bytes may be deleted is not added", func(h *harness) {
		_, err := h.Store.AddFile(h.Context(), "acme", fileOf("f1", "photo"), h.now+fileGrace)
		h.refuses(err, fault.Unavailable, "UPLOAD_EXPIRED")
		_, _, err = h.Store.File(h.Context(), "f1")
		h.refuses(err, fault.NotFound, "FILE_NOT_FOUND")
	}},
	{"bytes without a file are due for deletion", func(h *harness) { // a crash before the file is added
		h.scheduleBlob("acme", "f1")
		h.expectDue()
		h.now += fileGrace
		key := session.FileKey{Tenant: "acme", FileID: "f1"}
		h.expectDue(key)
		h.must(h.Store.BlobDeleted(h.Context(), key))
		h.expectDue()
		h.addFile("acme", "f2", "photo")
		h.now += fileGrace
		h.expectDue()
	}},
	{"a file whose deletion has started is not added", func(h *harness) {
		h.scheduleBlob("acme", "f1")
		key := session.FileKey{Tenant: "acme", FileID: "f1"}
		h.startDeletion(key, false) // not yet due
		h.now += fileGrace
		h.startDeletion(key, true)
		h.startDeletion(key, false)
		_, err := h.Store.AddFile(h.Context(), "acme", fileOf("f1", "photo"), h.now+fileGrace)
		h.refuses(err, fault.Unavailable, "UPLOAD_EXPIRED")
		_, _, err = h.Store.File(h.Context(), "f1")
		h.refuses(err, fault.NotFound, "FILE_NOT_FOUND")
		h.expectDue()
		h.now += fileGrace
		h.expectDue(key) // the replica died
		h.startDeletion(key, true)
		h.must(h.Store.BlobDeleted(h.Context(), key))
		h.startDeletion(key, false)
	}},
	{"a file without a session is deleted after its hold", func(h *harness) {
		f := h.addFile("acme", "f1", "photo")
		h.now += fileGrace - 1
		h.deleteExpired("f1", false)
		_, err := h.Store.FindFile(h.Context(), "acme", f.Digest, f.MediaType, h.now+fileGrace)
		h.must(err)
		_, err = h.Store.FindFile(h.Context(), "acme", f.Digest, f.MediaType, h.now) // never shortens the hold
		h.must(err)
		h.now += fileGrace - 1
		h.expectExpired()
		h.deleteExpired("f1", false)
		h.now++
		h.expectExpired("f1")
		h.deleteExpired("f1", true)
		h.expectExpired()
		h.expectDue(session.FileKey{Tenant: "acme", FileID: "f1"})
		_, _, err = h.Store.File(h.Context(), "f1")
		h.refuses(err, fault.NotFound, "FILE_NOT_FOUND")
		h.deleteExpired("f1", false)
	}},
	{"a file lives as long as a session refers to it", func(h *harness) {
		h.addFile("acme", "f1", "photo")
		h.start(h.startWith(home, "f1", "f1"))
		h.start(h.startWith(at("s2"), "f1"))
		h.now += fileGrace
		h.expectExpired("f1")
		h.deleteExpired("f1", false) // the hold
		h.expectExpired()
		h.must(h.delete(home))
		h.deleteExpired("f1", false)
		h.must(h.delete(at("s2")))
		h.expectExpired("f1")
		h.deleteExpired("f1", true)
	}},
	{"a file is gone with its last session", func(h *harness) {
		readable := func(id string, want bool) {
			h.Helper()
			_, _, err := h.Store.File(h.Context(), id)
			found, findErr := h.Store.FilesByID(h.Context(), "acme", []string{id})
			h.must(findErr)
			if want {
				h.must(err)
				same(h, "files with the id", len(found), 1)
				return
			}
			h.refuses(err, fault.NotFound, "FILE_NOT_FOUND")
			same(h, "files with the id", len(found), 0)
		}
		f := h.addFile("acme", "f1", "photo")
		h.addFile("acme", "another", "another")
		h.addFile("other", "foreign", "photo")
		h.start(h.startWith(home, "f1"))
		h.start(h.startWith(at("s2"), "f1", "another"))
		h.must(h.delete(home))
		readable("f1", true) // for the other session
		h.must(h.delete(at("s2")))
		readable("f1", false) // although its hold would last
		readable("another", false)
		_, _, err := h.Store.File(h.Context(), "foreign")
		h.must(err)
		h.expectExpired("another", "f1")
		_, err = h.Store.FindFile(h.Context(), "acme", f.Digest, f.MediaType, h.now+fileGrace) // uploaded again
		h.must(err)
		readable("f1", true)
		h.deleteExpired("f1", false)
		h.deleteExpired("another", true)
	}},
	{"a session with the id of a deleted one keeps its files", func(h *harness) {
		h.addFile("acme", "f1", "photo")
		h.start(h.startWith(home, "f1"))
		h.must(h.delete(home))
		h.start(h.startWith(home, "f1"))
		h.now += fileGrace
		h.deleteExpired("f1", false)
		h.expectExpired()
	}},
	{"the files of an edited, an appended and a waiting message are kept", func(h *harness) {
		for _, id := range []string{"edited", "appended", "waiting"} {
			h.addFile("acme", id, id)
		}
		first := h.startOf(home)
		h.start(first)
		h.finish(h.claimOf(home))
		edit := h.editOf(home, first.Messages[0].ID)
		edit.Messages[0].FileIDs = []string{"edited"}
		h.start(edit)
		h.appendMessage(home, session.Message{ID: "more", Role: "user", CreatedAt: h.now, Body: []byte("x"), FileIDs: []string{"appended"}})
		waiting := h.waitingOf(home)
		waiting.Messages[0].FileIDs = []string{"waiting"}
		if got := h.start(waiting); !got.Waiting {
			h.Fatalf("got %+v, want it to wait", got)
		}
		h.now += fileGrace
		for _, id := range []string{"edited", "appended", "waiting"} {
			h.deleteExpired(id, false)
		}
		h.finish(h.claimOf(home))
		h.finish(h.claimOf(home)) // of the waiting message
		h.must(h.delete(home))
		h.expectExpired("appended", "edited", "waiting")
	}},
	{"a branch keeps the files of its source", func(h *harness) {
		h.addFile("acme", "f1", "photo")
		start := h.startWith(home, "f1")
		h.start(start)
		ref := h.claimOf(home)
		h.commit(h.commitOf(ref, 1))
		h.finish(ref)
		point := h.checkpoints(home)[0].ID
		_, err := h.branch(home, point, at("branch"))
		h.must(err)
		h.branchOff(h.branchOffOf(home, point, at("started")))
		h.must(h.delete(home))
		h.now += fileGrace
		h.deleteExpired("f1", false)
		h.expectExpired()
		h.must(h.delete(at("branch")))
		h.deleteExpired("f1", false)
		h.must(h.delete(at("started")))
		h.deleteExpired("f1", true)
	}},
	{"a message with an unknown file is refused, and its neighbours are written", func(h *harness) {
		h.addFile("other", "foreign", "photo")
		var all sync.WaitGroup
		for i := range 20 {
			c := h.startOf(at(fmt.Sprint("n", i)))
			if i%4 == 0 {
				c.Messages[0].FileIDs = []string{[]string{"unknown", "foreign"}[i/4%2]}
			}
			all.Go(func() {
				_, err := h.tryStart(c)
				if i%4 == 0 {
					h.refuses(err, fault.NotFound, "FILE_NOT_FOUND")
				} else if err != nil {
					h.Errorf("a neighbour got %v", err)
				}
			})
		}
		all.Wait()
	}},
	{"a file is never deleted while a message with it is written", func(h *harness) {
		second := h.Store
		if h.Second != nil {
			second = h.Second(h.T)
		}
		for i := range 40 {
			id := fmt.Sprint("f", i)
			h.addFile("acme", id, id)
			c := h.startWith(at("of "+id), id)
			key, later := session.FileKey{Tenant: "acme", FileID: id}, h.now+fileGrace
			var refused, deleted bool
			var all sync.WaitGroup
			all.Go(func() {
				_, err := h.tryStart(c)
				if refused = err != nil; refused {
					h.refuses(err, fault.NotFound, "FILE_NOT_FOUND")
				}
			})
			all.Go(func() {
				var err error
				if deleted, err = second.DeleteExpiredLinks(h.Context(), key, later); err != nil {
					h.Error(err)
				}
			})
			all.Wait()
			if refused != deleted {
				h.Errorf("the message was refused: %t, the file deleted: %t", refused, deleted)
			}
		}
	}},
	{"two replicas delete a file once", func(h *harness) {
		second := h.Store
		if h.Second != nil {
			second = h.Second(h.T)
		}
		for i := range 20 {
			id := fmt.Sprint("f", i)
			h.addFile("acme", id, id)
			h.now += fileGrace
			var gone [2]bool
			var all sync.WaitGroup
			for n, s := range []store.Files{h.Store, second} {
				all.Go(func() {
					var err error
					if gone[n], err = s.DeleteExpiredLinks(h.Context(), session.FileKey{Tenant: "acme", FileID: id}, h.now); err != nil {
						h.Error(err)
					}
				})
			}
			all.Wait()
			if gone[0] == gone[1] {
				h.Errorf("got %v, want one deletion", gone)
			}
		}
	}},
}

func fileOf(id, content string) session.File {
	digest := sha256.Sum256([]byte(content))
	return session.File{ID: id, MediaType: "image/png", Size: int64(len(content)), Digest: digest[:], CreatedAt: 7}
}

// scheduleBlob does what precedes the storing of bytes.
func (h *harness) scheduleBlob(tenant, id string) {
	h.Helper()
	h.must(h.Store.ScheduleBlobDeletion(h.Context(), session.FileKey{Tenant: tenant, FileID: id}, h.now+fileGrace))
}

// startDeletion starts a deletion. It is due again after the grace.
func (h *harness) startDeletion(key session.FileKey, want bool) {
	h.Helper()
	started, err := h.Store.StartBlobDeletion(h.Context(), key, h.now, h.now+fileGrace)
	h.must(err)
	same(h, "start of the deletion of "+key.FileID, started, want)
}

// addFile adds a file, and holds it.
func (h *harness) addFile(tenant, id, content string) session.File {
	h.Helper()
	h.scheduleBlob(tenant, id)
	h.must(h.Store.Blobs.PutBlob(h.Context(), session.FileKey{Tenant: tenant, FileID: id}, bytes.NewReader([]byte(content))))
	got, err := h.Store.AddFile(h.Context(), tenant, fileOf(id, content), h.now+fileGrace)
	h.must(err)
	same(h, "added file", *got, fileOf(id, content))
	return *got
}

// startWith is startOf for a message with files.
func (h *harness) startWith(key session.Key, ids ...string) session.Send {
	c := h.startOf(key)
	c.Messages[0].FileIDs = ids
	return c
}

func (h *harness) deleteExpired(id string, want bool) {
	h.Helper()
	deleted, err := h.Store.DeleteExpiredLinks(h.Context(), session.FileKey{Tenant: "acme", FileID: id}, h.now)
	h.must(err)
	same(h, "deletion of "+id, deleted, want)
}

// expectExpired checks which files have expired links.
func (h *harness) expectExpired(want ...string) {
	h.Helper()
	keys, err := h.Store.FilesWithExpiredLinks(h.Context(), "", h.now, 1000)
	h.must(err)
	var got []string
	for _, k := range keys {
		got = append(got, k.FileID)
	}
	slices.Sort(got)
	same(h, "files with expired links", slices.Compact(got), want)
}

// expectDue checks which bytes are due for deletion.
func (h *harness) expectDue(want ...session.FileKey) {
	h.Helper()
	got, err := h.Store.DueBlobDeletions(h.Context(), "", h.now, 1000)
	h.must(err)
	same(h, "bytes to delete", got, want)
}
