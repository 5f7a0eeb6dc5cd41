package session

// FileKey names a file. Ids are unique over all tenants.
type FileKey struct {
	Tenant string
	FileID string
}

// File describes a stored file of a tenant, without its bytes. There is one for equal bytes of one media type.
type File struct {
	ID        string
	MediaType string
	Size      int64
	Digest    []byte // SHA-256 of the bytes
	CreatedAt Millis
}
