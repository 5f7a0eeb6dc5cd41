package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-run/holdfast/bench/internal/agent"
	"github.com/holdfast-run/holdfast/bench/internal/cpu"
	"github.com/holdfast-run/holdfast/bench/internal/peer"
	"github.com/holdfast-run/holdfast/bench/internal/postgres"
)

const (
	prepareLimit = 20 * time.Minute
	startLimit   = 2 * time.Minute
	// batchLimit bounds the runs of a batch.
	batchLimit = 5 * time.Minute
	// warmUpRuns is the number of concurrent runs before a peer is measured.
	warmUpRuns = 16
)

// sample is one measurement.
type sample struct {
	// step is the processor time of a step in milliseconds, and database the part used by Postgres.
	step, database float64
	rate           float64 // steps per second
}

// driver measures peers in turn on one database server.
type driver struct {
	options
	log      io.Writer
	dir      string
	server   *postgres.Server
	peers    map[string]peer.Peer // available peers
	failures map[string]error     // why a peer was skipped or not measured to the end
	samples  map[key][]sample
}

// key identifies a cell of the table.
type key struct {
	peer string
	runs int
}

func newDriver(ctx context.Context, o options, log io.Writer) (*driver, error) {
	d := &driver{options: o, log: log, peers: map[string]peer.Peer{}, failures: map[string]error{}, samples: map[key][]sample{}}
	var err error
	if d.dir, err = os.MkdirTemp("", "holdfast-bench-"); err != nil {
		return nil, err
	}
	if d.server, err = postgres.Start(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(d.dir))
	}
	return d, nil
}

func (d *driver) close() {
	if err := errors.Join(d.server.Stop(), os.RemoveAll(d.dir)); err != nil {
		fmt.Fprintln(d.log, "remove what was measured:", err)
	}
}

// bin is the folder for built programs, kept between runs.
func bin() (string, error) { return filepath.Abs(".bin") }

// prepare installs and builds all peers. Unavailable peers are skipped.
func (d *driver) prepare(ctx context.Context) error {
	folder, err := bin()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, c := range d.options.peers {
		fmt.Fprintf(d.log, "prepare %s\n", c.name)
		ctx, cancel := context.WithTimeout(ctx, prepareLimit)
		p := c.make()
		err := p.Prepare(ctx, folder)
		cancel()
		if err != nil {
			d.failures[c.name] = fmt.Errorf("skipped: %w", err)
			fmt.Fprintf(d.log, "%s is skipped: %v\n", c.name, err)
			continue
		}
		d.peers[c.name] = p
	}
	return ctx.Err()
}

// measureAll measures the peers in turn, round by round. A peer that fails is left out of later rounds and is
// part of the error.
func (d *driver) measureAll(ctx context.Context) error {
	var failed error
	for round := 1; round <= d.rounds; round++ {
		for _, c := range d.options.peers {
			if d.failures[c.name] != nil {
				continue
			}
			fmt.Fprintf(d.log, "round %d of %d: %s\n", round, d.rounds, c.name)
			if err := d.measurePeer(ctx, c.name); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				d.failures[c.name] = fmt.Errorf("failed in round %d: %w", round, err)
				failed = errors.Join(failed, fmt.Errorf("%s %w", c.name, d.failures[c.name]))
			}
		}
	}
	return failed
}

// measurePeer starts a peer on an empty database and an empty folder, measures it with each number of runs, and
// ends it.
func (d *driver) measurePeer(ctx context.Context, name string) (err error) {
	w := peer.World{}
	if w.Bin, err = bin(); err != nil {
		return err
	}
	if w.Dir, err = os.MkdirTemp(d.dir, name+"-"); err != nil {
		return err
	}
	if w.Database, err = d.server.Create(ctx); err != nil {
		return err
	}
	p := d.peers[name]
	defer func() {
		p.Stop()
		err = errors.Join(err, d.server.Drop(context.WithoutCancel(ctx)), os.RemoveAll(w.Dir))
	}()
	starting, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := p.Start(starting, w); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if _, err := d.measure(ctx, p, warmUpRuns, d.warmUp); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	for _, n := range d.runs {
		s, err := d.measure(ctx, p, n, d.window)
		if err != nil {
			return fmt.Errorf("%d runs at a time: %w", n, err)
		}
		at := key{name, n}
		d.samples[at] = append(d.samples[at], s)
		if d.details {
			fmt.Fprintf(d.log, "  %3d runs at a time: %7.3f ms a step, of which Postgres %.3f; %.0f steps/s\n", n, s.step, s.database, s.rate)
		}
	}
	return nil
}

// measure runs batches of n runs until the window ends.
func (d *driver) measure(ctx context.Context, p peer.Peer, n int, window time.Duration) (sample, error) {
	runtime, database, err := d.used(p)
	if err != nil {
		return sample{}, err
	}
	begin, steps := time.Now(), 0
	for time.Since(begin) < window {
		ctx, cancel := context.WithTimeout(ctx, batchLimit)
		err := p.Run(ctx, n)
		cancel()
		if err != nil {
			return sample{}, err
		}
		steps += n * agent.Steps
	}
	took := time.Since(begin)
	runtimeAfter, databaseAfter, err := d.used(p)
	if err != nil {
		return sample{}, err
	}
	perStep := func(used time.Duration) float64 { return used.Seconds() * 1000 / float64(steps) }
	return sample{
		step:     perStep(runtimeAfter - runtime + databaseAfter - database),
		database: perStep(databaseAfter - database),
		rate:     float64(steps) / took.Seconds(),
	}, nil
}

// used returns the processor time so far of the peer's processes and of Postgres.
func (d *driver) used(p peer.Peer) (runtime, database time.Duration, err error) {
	if runtime, err = cpu.Used(p.PIDs()...); err != nil {
		return 0, 0, err
	}
	database, err = cpu.Used(d.server.PID())
	return runtime, database, err
}
