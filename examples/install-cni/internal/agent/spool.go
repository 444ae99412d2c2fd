// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/spool"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// collectAfter is how long lines gather on the disk before they are collected.
const collectAfter = time.Second

// pluginName is in the names of the files that plugins leave in the run directory.
const pluginName = "istio-cni"

// Spool returns the part that collects what plugins kept on the disk. Since it watches the run
// directory anyway, it also restarts a part whose socket there was removed, or was replaced by
// another daemon that has ended since.
func (a *Agent) Spool() parts.Part {
	return parts.Part{Name: spoolPart, Run: func(ctx context.Context, say func(string)) error {
		if err := os.MkdirAll(a.RunDir, runDirMode); err != nil {
			return fmt.Errorf("make the run directory: %w", err)
		}
		watches := upkeep.NewWatches(a.RunDir)
		defer watches.Close()
		if _, err := watches.Ensure(time.Now()); err != nil {
			return err
		}
		say("")
		return (&collector{agent: a, watches: watches}).run(ctx)
	}}
}

type collector struct {
	agent   *Agent
	watches *upkeep.Watches
}

func (c *collector) run(ctx context.Context) error {
	due := time.NewTimer(0) // files from before the watch
	defer due.Stop()
	waiting := true
	later := func() {
		if !waiting {
			waiting = true
			due.Reset(collectAfter)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-due.C:
			waiting = false
			if c.agent.collect(ctx) != nil {
				later()
			}
		case <-c.agent.Kept:
			c.agent.takeSockets(ctx)
		case event := <-c.watches.Events():
			kept, err := c.note(event)
			if err != nil {
				return err
			}
			if kept {
				later()
			}
		case err := <-c.watches.Errors():
			// Events may be lost: start again.
			return fmt.Errorf("watch %s: %w", c.agent.RunDir, err)
		}
	}
}

// note reports whether there is something to collect.
func (c *collector) note(event fsnotify.Event) (kept bool, err error) {
	gone := event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename)
	if event.Name == c.agent.RunDir && gone {
		for _, s := range sockets() {
			c.agent.Restart(s.part, "the run directory was taken away, and "+s.name+" with it")
		}
		return false, fmt.Errorf("the run directory %s was taken away", c.agent.RunDir)
	}
	if gone {
		c.lost(event.Name)
	}
	isKept := event.Name == spool.PluginLog(c.agent.RunDir, pluginName).Path || event.Name == spool.PluginResults(c.agent.RunDir, pluginName).Path
	return isKept && (event.Has(fsnotify.Create) || event.Has(fsnotify.Write)), nil
}

// lost restarts the part whose socket no longer exists at its path, unless a successor has put its
// own there.
func (c *collector) lost(path string) {
	for _, s := range sockets() {
		if filepath.Base(path) != s.name {
			continue
		}
		if info, err := os.Lstat(path); err != nil || info.Mode().Type() != fs.ModeSocket {
			c.agent.Restart(s.part, "its socket was taken away")
		}
	}
}

// collect takes everything that was kept. The error is for failures that a retry may fix soon.
func (a *Agent) collect(ctx context.Context) error {
	log, report := a.logs("kept-logs"), counted[[]podsource.Result]{"kept-results", results{a.Log, a.Observer}.Report, a.Observer}
	errLog := spool.PluginLog(a.RunDir, pluginName).Collect(ctx, func(kept [][]byte) error {
		return log.Log(ctx, parsed(a, kept, podsource.ParseLogLine))
	})
	errResults := spool.PluginResults(a.RunDir, pluginName).Collect(ctx, func(kept [][]byte) error {
		return report.Report(ctx, parsed(a, kept, parseResult))
	})
	err := errors.Join(errLog, errResults)
	if err != nil && !errors.Is(err, spool.ErrBusy) && ctx.Err() == nil {
		a.Log.Warn("can't collect what plugins stored on the disk; trying again when they store more", "error", err)
		return nil
	}
	return err
}

func parseResult(line []byte) (result podsource.Result, err error) {
	if err := json.Unmarshal(line, &result); err != nil {
		return result, fmt.Errorf("can't decode a result: %w", err)
	}
	return result, nil
}

// parsed leaves out lines that were cut short.
func parsed[T any](a *Agent, kept [][]byte, parse func([]byte) (T, error)) []T {
	all := make([]T, 0, len(kept))
	for _, line := range kept {
		one, err := parse(line)
		if err != nil {
			a.Log.Debug("left out a line that a plugin stored", "error", err)
			continue
		}
		all = append(all, one)
	}
	return all
}
