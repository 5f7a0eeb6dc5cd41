package chunklog

import "maps"

// Clone returns a reader that goes on by itself from where r is.
func (r *Reader) Clone() *Reader {
	c := *r
	c.below = maps.Clone(r.below)
	return &c
}
