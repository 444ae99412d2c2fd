// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
)

const (
	lookEvery   = time.Millisecond
	mostAbsent  = time.Second // at a time
	shareAbsent = 0.01
)

// neighbour is a program on a node that writes the list of the cluster's network anew, again and again,
// and measures by its own clock for how long the plugin is missing from it.
type neighbour struct {
	name    string
	node    *cluster.Node
	network cluster.Network
	pause   func() time.Duration // between writes
	daemon  string               // its directory in proc

	writes  int
	watched time.Duration
	absent  time.Duration // without the plugin
	// starved is the part of absent in which the daemon was ready to run, and the machine ran others.
	starved time.Duration
	longest time.Duration // without the plugin, at a time

	missing bool          // the plugin was when it was last looked
	current time.Duration // for so long
	queued  time.Duration // of the daemon, when that began
}

// neighbours are one on each of three nodes.
func neighbours(bridge, pointToPoint, another *cluster.Node) []*neighbour {
	random := rand.New(rand.NewPCG(1, 2))
	return []*neighbour{
		{name: "every 5 s", node: bridge, network: cluster.BridgeNetwork, pause: func() time.Duration { return 5 * time.Second }},
		{name: "every second", node: pointToPoint, network: cluster.PointToPointNetwork, pause: func() time.Duration { return time.Second }},
		{name: "every 0.5 to 10 s", node: another, network: cluster.BridgeNetwork, pause: func() time.Duration {
			return 500*time.Millisecond + time.Duration(random.Int64N(int64(9500*time.Millisecond)))
		}},
	}
}

// run writes and measures until the context ends. Each measurement is of the time since the one before.
func (n *neighbour) run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	begun := time.Now()
	last, next := begun, begun
	for ctx.Err() == nil {
		<-tick.C
		now := time.Now()
		if err := n.look(now.Sub(last)); err != nil {
			return err
		}
		last, n.watched = now, now.Sub(begun)
		if now.After(next) {
			if err := n.write(); err != nil {
				return err
			}
			next = now.Add(n.pause())
			last = time.Now() // what the write took isn't the plugin's absence
		}
	}
	return nil
}

// write writes the list without the plugin.
func (n *neighbour) write() error {
	if err := n.begin(); err != nil {
		return err
	}
	n.writes++
	return n.node.InstallNetwork(n.network)
}

// begin notes that the plugin is missing, if it wasn't.
func (n *neighbour) begin() (err error) {
	if !n.missing {
		n.missing = true
		n.queued, err = n.queue()
	}
	return err
}

// look looks whether the plugin is in the list, so long after it looked before or wrote.
func (n *neighbour) look(since time.Duration) error {
	text, err := os.ReadFile(n.node.Path(listFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	there := bytes.Contains(text, []byte(`"istio-cni"`))
	switch {
	case there && !n.missing:
		return nil
	case !there:
		n.current += since
		return n.begin()
	}
	n.current += min(since, lookEvery) // if the neighbour itself is late, it can't know when the plugin came
	queued, err := n.queue()
	if err != nil {
		return err
	}
	n.absent, n.longest = n.absent+n.current, max(n.longest, n.current)
	n.starved += min(n.current, max(0, queued-n.queued))
	n.missing, n.current = false, 0
	return nil
}

// queue is for how long the daemon's threads have been ready to run without a processor, all together.
func (n *neighbour) queue() (all time.Duration, err error) {
	names, err := filepath.Glob(n.daemon + "/task/*/schedstat")
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("the daemon that was %s has ended", n.daemon)
	}
	for _, name := range names {
		var ran, queued, turns int64
		text, failure := os.ReadFile(name)
		switch {
		case errors.Is(failure, fs.ErrNotExist) || errors.Is(failure, syscall.ESRCH): // the thread has ended
			continue
		case failure == nil:
			_, failure = fmt.Sscan(string(text), &ran, &queued, &turns)
		}
		all, err = all+time.Duration(queued), errors.Join(err, failure)
	}
	return all, err
}

// expect prints what was measured, and holds it against what is promised. A machine that has too much
// to do runs the daemon late: that is printed, and isn't the daemon's. How long the plugin may be
// missing at a time is promised all the same.
func (n *neighbour) expect(t *testing.T) {
	t.Helper()
	percent := func(d time.Duration) float64 { return 100 * d.Seconds() / n.watched.Seconds() }
	own := n.absent - n.starved
	t.Logf("%s, on %s: %d writes in %v; without the plugin for %.3f %% of the time (%.3f %% but for waits for a processor), at most %v at a time",
		n.name, n.node.Name, n.writes, n.watched.Round(time.Second), percent(n.absent), percent(own), n.longest.Round(time.Millisecond))
	if percent(own) >= 100*shareAbsent || n.longest > mostAbsent || n.writes < 10 || n.missing && n.current > mostAbsent {
		t.Errorf("%s: the plugin is missing for too long, or nothing was measured", n.name)
	}
}
