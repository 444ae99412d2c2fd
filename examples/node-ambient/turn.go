// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/meshcni/meshcni/ambient/agent/event"
)

// turn is the right of one process of the node to write: a lock on a file beside the records, which
// the kernel ends with the process.
type turn struct {
	file *os.File
	// started is when this process was, since the boot of the node.
	started time.Duration
}

// errSuperseded means that a process that was started later serves the node.
var errSuperseded = errors.New("a newer process serves the node: this one writes nothing more, and serves again when the newer one has ended")

const (
	// askAgain is the time between two attempts to get the turn.
	askAgain = 50 * time.Millisecond
	// lookAgain is the time between two looks of a process that stands by. It is longer than askAgain,
	// and than a parent takes to start its process again after a failure, so that the newer one
	// usually goes on.
	lookAgain = 500 * time.Millisecond
	// patience is how long a process that has the turn may take to end its work.
	patience = time.Minute
)

// openLock opens the file whose lock is the turn.
func openLock(o options) (*os.File, error) {
	file, err := os.OpenFile(o.journal+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the records: %w", err)
	}
	return file, nil
}

// awaitTurn waits until this process has the turn. It asks the process that has it to hand over.
// Two processes never have it at once. The error wraps errSuperseded if the other process was
// started later. It fails if that process does not end its work within patience.
func awaitTurn(ctx context.Context, o options, started, patience time.Duration, log *slog.Logger) (*turn, error) {
	file, err := openLock(o)
	if err != nil {
		return nil, err
	}
	t := &turn{file, started}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("another node-ambient has %s locked, and does not hand over "+
		"within %s: see which process has the file open, and end it", file.Name(), patience))
	defer cancel()
	if err := t.await(ctx, o.events, log); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return t, nil
}

func (t *turn) await(ctx context.Context, events string, log *slog.Logger) error {
	for asked := false; ; asked = true {
		locked, err := tryLock(t.file)
		if locked || err != nil {
			return err
		}
		if !asked {
			log.Info("another process serves the node, and is asked to hand over")
		}
		err = event.HandOver(ctx, events, t.started)
		if own, is := errors.AsType[*event.Error](err); is && own.Code == event.CodeRefused {
			return errSuperseded
		}
		select { // any other error is that of a process that begins or ends
		case <-time.After(askAgain):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// awaitFree waits until no process has the turn. It leaves the turn to the next process that asks.
func awaitFree(ctx context.Context, o options) error {
	file, err := openLock(o)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it gives the lock up
	for {
		select { // first: the process to which this one has handed over takes a moment to lock the file
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		locked, err := tryLock(file)
		if locked || err != nil {
			return err
		}
	}
}

// handOver returns what answers a process that wants the turn.
func (t *turn) handOver(end context.CancelCauseFunc) func(time.Duration) error {
	return func(started time.Duration) error {
		if started <= t.started {
			return &event.Error{Code: event.CodeRefused, Message: "this process was started later"}
		}
		end(errSuperseded)
		return nil
	}
}

// close gives the turn up.
func (t *turn) close() error { return t.file.Close() }
