package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// connection is one connection to the file, for one goroutine at a time. It caches
// compiled statements, since compiling costs as much as running.
type connection struct {
	conn       *sql.Conn
	statements map[string]*sql.Stmt
}

// maxStatements bounds the cached statements of a connection. The store has fewer
// texts, except for lists, whose texts depend on their conditions.
const maxStatements = 200

// statement returns the compiled query.
//
// Queries limit rows with "LIMIT 0 + ?". SQLite reads the value of a bare "LIMIT ?" when it
// plans, and so compiles the statement again for every execution.
func (c *connection) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	if s := c.statements[query]; s != nil {
		return s, nil
	}
	if len(c.statements) >= maxStatements {
		if err := c.closeStatements(); err != nil {
			return nil, err
		}
	}
	s, err := c.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	c.statements[query] = s
	return s, nil
}

func (c *connection) closeStatements() error {
	var errs []error
	for _, s := range c.statements {
		errs = append(errs, s.Close())
	}
	clear(c.statements)
	return errors.Join(errs...)
}

// close closes the statements and the connection.
func (c *connection) close() error { return errors.Join(c.closeStatements(), c.conn.Close()) }

// exec runs a statement and returns the number of changed rows.
func (c *connection) exec(ctx context.Context, query string, args ...any) (int64, error) {
	s, err := c.statement(ctx, query) //nolint:sqlclosecheck // it is cached
	if err != nil {
		return 0, err
	}
	r, err := s.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// scanner reads the columns of one row.
type scanner interface{ Scan(to ...any) error }

// arguments returns the arguments of a query as a slice.
func arguments(of ...any) []any { return of }

// forEach calls scan for every row. scan must not use the connection.
func (c *connection) forEach(ctx context.Context, query string, args []any, scan func(scanner) error) error {
	return c.forEachUntil(ctx, query, args, func(row scanner) (bool, error) { return true, scan(row) })
}

// forEachUntil is forEach until scan returns false.
func (c *connection) forEachUntil(ctx context.Context, query string, args []any, scan func(scanner) (more bool, err error)) error {
	s, err := c.statement(ctx, query) //nolint:sqlclosecheck // it is cached
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if more, err := scan(rows); err != nil || !more {
			return err
		}
	}
	return rows.Err()
}

// queryRow scans the first row. found is false when there is none.
func (c *connection) queryRow(ctx context.Context, query string, args []any, to ...any) (found bool, err error) {
	s, err := c.statement(ctx, query) //nolint:sqlclosecheck // it is cached
	if err != nil {
		return false, err
	}
	err = s.QueryRowContext(ctx, args...).Scan(to...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// inTransaction runs f in a transaction, and rolls it back when f fails or panics. BEGIN
// and COMMIT ignore the end of ctx, so that their outcome is known.
func (c *connection) inTransaction(ctx context.Context, begin string, f func() error) error {
	uncanceled := context.WithoutCancel(ctx)
	if _, err := c.exec(uncanceled, begin); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	committed := false
	defer func() {
		if !committed {
			_, _ = c.exec(uncanceled, `ROLLBACK`) // fails when SQLite has already rolled back
		}
	}()
	if err := f(); err != nil {
		return err
	}
	if _, err := c.exec(uncanceled, `COMMIT`); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	committed = true
	return nil
}

var errClosed = errors.New("the database is closed")

// pool lends connections. The longest waiting caller gets the next one.
type pool struct {
	db     *sql.DB
	free   chan *connection
	closed chan struct{}
}

// openPool opens that many connections to a data source.
func openPool(ctx context.Context, source string, connections int) (*pool, error) {
	db, err := sql.Open("sqlite", source)
	if err != nil {
		return nil, err
	}
	p := &pool{db: db, free: make(chan *connection, connections), closed: make(chan struct{})}
	for range connections {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.free <- &connection{conn: conn, statements: map[string]*sql.Stmt{}}
	}
	return p, nil
}

// withConn waits for a connection and calls f with it.
func (p *pool) withConn(ctx context.Context, f func(*connection) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-p.closed:
		return errClosed
	default:
	}
	select {
	case c := <-p.free:
		defer func() { p.free <- c }()
		return f(c)
	case <-p.closed:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close waits for the used connections and closes all. It must be called once.
func (p *pool) close() error {
	close(p.closed)
	var errs []error
	for range p.db.Stats().OpenConnections {
		errs = append(errs, (<-p.free).close())
	}
	return errors.Join(append(errs, p.db.Close())...)
}
