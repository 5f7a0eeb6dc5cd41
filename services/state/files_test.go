package state_test

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"testing"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// filesIn counts the files in a folder.
func filesIn(t *testing.T, folder string) (count int) {
	t.Helper()
	must(t, filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			count++
		}
		return err
	}))
	return count
}

func TestTheBytesOfFilesMayBeInAFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	h := run(t, defaults(t, "HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_FILES=folder", "HOLDFAST_STATE_FILES_FOLDER="+folder))
	client := statev1.NewFileServiceClient(h.all)
	stream, err := client.PutFile(t.Context())
	must(t, err)
	must(t, stream.Send(&statev1.PutFileRequest{Part: &statev1.PutFileRequest_Head{Head: &statev1.PutFileHead{Tenant: "t", MediaType: "text/plain"}}}))
	must(t, stream.Send(&statev1.PutFileRequest{Part: &statev1.PutFileRequest_Data{Data: []byte("hello")}}))
	put, err := stream.CloseAndRecv()
	must(t, err)
	if got := filesIn(t, folder); got != 1 {
		t.Errorf("got %d files in the folder, want 1", got)
	}
	read, err := client.ReadFile(t.Context(), &statev1.ReadFileRequest{FileId: put.GetFile().GetFileId()})
	must(t, err)
	text := ""
	for {
		part, err := read.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		text += string(part.GetData())
	}
	if text != "hello" {
		t.Errorf("got %q", text)
	}
}
