package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// InMemory is the path of a database that ends with its Store. It creates no files, and
// holds at most 1 GiB.
const InMemory = ":memory:"

// emptyImage returns the file of a migrated database without rows. A database in memory
// starts as a copy of it, since the migrations would take fifty times as long.
var emptyImage = sync.OnceValues(func() (image []byte, err error) {
	ctx := context.Background()
	p, err := openPool(ctx, dataSource(InMemory), 1)
	if err != nil {
		return nil, err
	}
	err = p.withConn(ctx, func(c *connection) error {
		if err := migrate(ctx, c); err != nil {
			return err
		}
		return c.conn.Raw(func(driver any) error {
			image, err = driver.(interface{ Serialize() ([]byte, error) }).Serialize()
			return err
		})
	})
	return image, errors.Join(err, p.close())
})

// loadEmpty makes the connection's database a copy of emptyImage.
func loadEmpty(c *connection) error {
	image, err := emptyImage()
	if err != nil {
		return fmt.Errorf("make the empty database: %w", err)
	}
	return c.conn.Raw(func(driver any) error {
		return driver.(interface{ Deserialize(image []byte) error }).Deserialize(image)
	})
}
