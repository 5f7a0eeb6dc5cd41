// Command bench runs the same agent on Holdfast and on its peers in turn, and prints the processor time of a
// step. README.md explains the method.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the command line's options.
type options struct {
	rounds  int
	peers   []contender
	runs    []int
	window  time.Duration
	warmUp  time.Duration
	details bool
}

// The defaults, and their values with -quick.
const (
	rounds, quickRounds = 3, 1
	window, quickWindow = 6 * time.Second, 3 * time.Second
	warmUp, quickWarmUp = 2 * time.Second, time.Second
)

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{warmUp: warmUp, runs: []int{1, 16, 64}, peers: contenders()}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.rounds, "rounds", rounds, "how many times each peer is measured")
	flags.DurationVar(&o.window, "window", window, "how long a measurement takes at least; batches of runs that have begun are finished")
	quick := flags.Bool("quick", false, "one round with windows of 3s, unless other flags say otherwise: for a first look")
	flags.BoolVar(&o.details, "details", false, "print each measurement with its parts")
	flags.Func("runs", "how many runs go on at the same time, separated by commas (default 1,16,64)", func(text string) (err error) {
		o.runs, err = numbers(text)
		return err
	})
	flags.Func(
		"peers",
		"which peers, separated by commas (default all: "+strings.Join(names(o.peers), ",")+")",
		func(text string) (err error) {
			o.peers, err = choose(contenders(), strings.Split(text, ","))
			return err
		},
	)
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if *quick {
		given := map[string]bool{}
		flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
		o.warmUp = quickWarmUp
		if !given["rounds"] {
			o.rounds = quickRounds
		}
		if !given["window"] {
			o.window = quickWindow
		}
	}
	if flags.NArg() > 0 || o.rounds < 1 || o.window <= 0 {
		return options{}, errors.New("rounds and window must be above 0, and there are no arguments beside flags")
	}
	return o, nil
}

// numbers parses positive integers separated by commas.
func numbers(text string) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no number above 0", part)
		}
		all = append(all, n)
	}
	return all, nil
}

// choose returns the named contenders in the order of the names.
func choose(all []contender, wanted []string) ([]contender, error) {
	var chosen []contender
	for _, name := range wanted {
		i := slices.IndexFunc(all, func(c contender) bool { return c.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no peer %q; there are %s", name, strings.Join(names(all), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func names(all []contender) []string {
	var names []string
	for _, c := range all {
		names = append(names, c.name)
	}
	return names
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	d, err := newDriver(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer d.close()
	if err := d.prepare(ctx); err != nil {
		return err
	}
	measured := d.measureAll(ctx)
	return errors.Join(measured, d.report(stdout))
}
