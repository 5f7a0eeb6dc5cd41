package worker

import (
	"cmp"
	"container/list"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/retry"
)

// fileLoader loads the stored files of conversations for models, which take data: URLs. It may be used by many goroutines.
type fileLoader struct {
	client   statev1.FileServiceClient
	timeout  time.Duration // of one request
	maxCall  int64         // bytes of the files of one model call
	inMemory *semaphore.Weighted
	cache    fileCache
}

func newFileLoader(c Config, client statev1.FileServiceClient) *fileLoader {
	return &fileLoader{
		client: client, timeout: c.CallTimeout, maxCall: c.MaxCallFileBytes,
		inMemory: semaphore.NewWeighted(max(c.FileMemory, c.MaxCallFileBytes)), cache: fileCache{most: c.FileCacheBytes},
	}
}

// load returns a copy of the run's messages with data: URLs in place of references. A note stands in place of a file that is
// gone, and of the oldest files if they are too large together. The last visible user message keeps its files,
// and fails with an *model.Error of the code CodeFileMissing or CodeFilesTooLarge. Calls wait while the files of other calls fill
// the memory for them. The caller calls release at the end of the model call.
func (l *fileLoader) load(ctx context.Context, run *statev1.RunRef, messages []agent.Message) (
	loaded []agent.Message, release func(), err error,
) {
	ids := storedFiles(messages)
	if len(ids) == 0 {
		return messages, func() {}, nil
	}
	known, err := l.describe(ctx, run, ids)
	if err != nil {
		return nil, nil, err
	}
	chosen, size, err := l.choose(messages, known)
	if err != nil {
		return nil, nil, err
	}
	if err := l.inMemory.Acquire(ctx, size); err != nil {
		return nil, nil, err
	}
	release = sync.OnceFunc(func() { l.inMemory.Release(size) })
	required := storedFiles(messages[max(model.LastQuestion(messages), 0):])
	urls := map[string]string{}
	for _, file := range chosen {
		url, err := l.url(ctx, run, file)
		if _, missing := errors.AsType[*model.Error](err); err != nil && (!missing || slices.Contains(required, file.GetFileId())) {
			release()
			return nil, nil, err
		}
		urls[file.GetFileId()] = url
	}
	return replaceStoredFiles(messages, known, urls), release, nil
}

// storedFiles returns the ids of the stored files in the messages, without repetitions.
func storedFiles(messages []agent.Message) (ids []string) {
	for _, m := range messages {
		for _, p := range m.Parts {
			if f, ok := p.(agent.File); ok {
				if id, stored := eventv1.FileID(f.URL); stored {
					ids = append(ids, id)
				}
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// maxFileIDs is that of GetFiles.
const maxFileIDs = 1000

// describe returns the known files by id.
func (l *fileLoader) describe(ctx context.Context, run *statev1.RunRef, ids []string) (map[string]*statev1.File, error) {
	known := map[string]*statev1.File{}
	for page := range slices.Chunk(ids, maxFileIDs) {
		err := retry.Call(ctx, l.timeout, func(ctx context.Context) error {
			got, err := l.client.GetFiles(ctx, &statev1.GetFilesRequest{Tenant: run.GetTenant(), FileIds: page}, grant.Attach(run.GetGrant()))
			for _, f := range got.GetFiles() {
				known[f.GetFileId()] = f
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read %d files: %w", len(page), err)
		}
	}
	return known, nil
}

// choose returns the newest files within the limit of one call, and their size.
func (l *fileLoader) choose(messages []agent.Message, known map[string]*statev1.File) (chosen []*statev1.File, size int64, err error) {
	required := model.LastQuestion(messages)
	seen, full := map[string]bool{}, false
	for at, m := range slices.Backward(messages) {
		for _, id := range storedFiles([]agent.Message{m}) {
			file := known[id]
			switch {
			case seen[id]:
			case file == nil && at >= required:
				return nil, 0, &model.Error{Code: model.CodeFileMissing, Message: fmt.Sprintf("the stored file %s of message %s was deleted", id, m.ID)}
			case file == nil || full:
			case size+file.GetSize() <= l.maxCall:
				seen[id] = true
				size += file.GetSize()
				chosen = append(chosen, file)
			case at >= required:
				return nil, 0, &model.Error{Code: model.CodeFilesTooLarge, Message: fmt.Sprintf(
					"the files of message %s have more than the %d bytes of HOLDFAST_EXECUTOR_MAX_CALL_FILE_BYTES", m.ID, l.maxCall)}
			default:
				full = true // a prompt without a file in the middle would mislead
			}
		}
	}
	return chosen, size, nil
}

// url returns the data: URL of a file.
func (l *fileLoader) url(ctx context.Context, run *statev1.RunRef, file *statev1.File) (string, error) {
	if url := l.cache.get(file.GetFileId()); url != "" {
		return url, nil
	}
	var url string
	err := retry.Call(ctx, l.timeout, func(ctx context.Context) (err error) {
		url, err = l.read(ctx, run, file)
		return err
	})
	if fault.KindOf(err) == fault.NotFound {
		text := fmt.Sprintf("the stored file %s cannot be read", file.GetFileId())
		return "", &model.Error{Code: model.CodeFileMissing, Message: text, Err: err}
	}
	if err != nil {
		return "", fmt.Errorf("read file %s: %w", file.GetFileId(), err)
	}
	l.cache.add(file.GetFileId(), url)
	return url, nil
}

func (l *fileLoader) read(ctx context.Context, run *statev1.RunRef, file *statev1.File) (string, error) {
	request := &statev1.ReadFileRequest{Tenant: run.GetTenant(), FileId: file.GetFileId()}
	stream, err := l.client.ReadFile(ctx, request, grant.Attach(run.GetGrant()))
	if err != nil {
		return "", err
	}
	header := "data:" + file.GetMediaType() + ";base64,"
	var url strings.Builder
	url.Grow(len(header) + base64.StdEncoding.EncodedLen(int(file.GetSize())))
	url.WriteString(header)
	encoder := base64.NewEncoder(base64.StdEncoding, &url)
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = encoder.Close()
			return url.String(), err
		}
		if err != nil {
			return "", err
		}
		if _, err := encoder.Write(part.GetData()); err != nil {
			return "", err
		}
	}
}

// replaceStoredFiles returns a copy of the messages with URLs or notes in place of references. A model gets the media type of the
// stored bytes.
func replaceStoredFiles(messages []agent.Message, known map[string]*statev1.File, urls map[string]string) []agent.Message {
	out := slices.Clone(messages)
	for i, m := range out {
		if len(storedFiles(out[i:i+1])) == 0 {
			continue
		}
		out[i].Parts = slices.Clone(m.Parts)
		for j, p := range m.Parts {
			f, ok := p.(agent.File)
			id, stored := eventv1.FileID(f.URL)
			if !ok || !stored {
				continue
			}
			if urls[id] == "" {
				out[i].Parts[j] = model.FileNote(f)
				continue
			}
			f.URL, f.MediaType = urls[id], cmp.Or(known[id].GetMediaType(), f.MediaType)
			out[i].Parts[j] = f
		}
	}
	return out
}

// fileCache keeps the newest data: URLs, up to a number of bytes. The zero value keeps none.
type fileCache struct {
	most int64

	mu    sync.Mutex
	size  int64
	order list.List // of *cachedFile, the newest first
	byID  map[string]*list.Element
}

type cachedFile struct{ id, url string }

// get returns "" for a missing file.
func (c *fileCache) get(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byID[id]
	if e == nil {
		return ""
	}
	c.order.MoveToFront(e)
	return e.Value.(*cachedFile).url //nolint:forcetypeassert // nothing else is added
}

func (c *fileCache) add(id, url string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[id] != nil || int64(len(url)) > c.most {
		return
	}
	if c.byID == nil {
		c.byID = map[string]*list.Element{}
	}
	c.byID[id] = c.order.PushFront(&cachedFile{id, url})
	for c.size += int64(len(url)); c.size > c.most; {
		oldest := c.order.Remove(c.order.Back()).(*cachedFile) //nolint:forcetypeassert // as above
		delete(c.byID, oldest.id)
		c.size -= int64(len(oldest.url))
	}
}
