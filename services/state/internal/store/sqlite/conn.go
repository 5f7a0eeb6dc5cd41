package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// connection is one connection to the file, for one goroutine at a time. It
// keeps its statements compiled, which otherwise costs as much as running them.
type connection struct {
	conn       *sql.Conn
	statements map[string]*sql.Stmt
}

// mostStatements bounds what a connection keeps. The store has fewer texts but
// for those that are made for a list's conditions.
const mostStatements = 200

// statement returns the compiled text.
func (c *connection) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	if s := c.statements[query]; s != nil {
		return s, nil
	}
	if len(c.statements) >= mostStatements {
		if err := c.forget(); err != nil {
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

func (c *connection) forget() error {
	var errs []error
	for _, s := range c.statements {
		errs = append(errs, s.Close())
	}
	clear(c.statements)
	return errors.Join(errs...)
}

// close ends the connection.
func (c *connection) close() error { return errors.Join(c.forget(), c.conn.Close()) }

// exec runs a statement, and returns how many rows it has changed.
func (c *connection) exec(ctx context.Context, query string, args ...any) (int64, error) {
	s, err := c.statement(ctx, query) //nolint:sqlclosecheck // it is kept
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

// arguments are those of a query.
func arguments(of ...any) []any { return of }

// each calls scan for every row. scan makes no queries.
func (c *connection) each(ctx context.Context, query string, args []any, scan func(scanner) error) error {
	return c.some(ctx, query, args, func(row scanner) (bool, error) { return true, scan(row) })
}

// some is each until scan wants no more.
func (c *connection) some(ctx context.Context, query string, args []any, scan func(scanner) (more bool, err error)) error {
	s, err := c.statement(ctx, query) //nolint:sqlclosecheck // it is kept
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

// one reads the first row, if there is one.
func (c *connection) one(ctx context.Context, query string, args []any, to ...any) (found bool, err error) {
	s, err := c.statement(ctx, query) //nolint:sqlclosecheck // it is kept
	if err != nil {
		return false, err
	}
	err = s.QueryRowContext(ctx, args...).Scan(to...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// transact runs f in a transaction, which it undoes when f fails or panics.
// What begins and ends it is not interrupted: nobody would know whether it had
// happened.
func (c *connection) transact(ctx context.Context, begin string, f func() error) error {
	whole := context.WithoutCancel(ctx)
	if _, err := c.exec(whole, begin); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	committed := false
	defer func() {
		if !committed {
			_, _ = c.exec(whole, `ROLLBACK`) // fails when SQLite has done so by itself
		}
	}()
	if err := f(); err != nil {
		return err
	}
	if _, err := c.exec(whole, `COMMIT`); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	committed = true
	return nil
}

var errClosed = errors.New("the database is closed")

// pool hands connections out, to whoever waits the longest.
type pool struct {
	db     *sql.DB
	free   chan *connection
	closed chan struct{}
}

// openPool opens the connections to a data source.
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

// use waits for a connection and gives it to f.
func (p *pool) use(ctx context.Context, f func(*connection) error) error {
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

// close waits for the connections in use and closes them all. It is called
// once.
func (p *pool) close() error {
	close(p.closed)
	var errs []error
	for range p.db.Stats().OpenConnections {
		errs = append(errs, (<-p.free).close())
	}
	return errors.Join(append(errs, p.db.Close())...)
}
