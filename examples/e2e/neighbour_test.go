// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/meshcni/meshcni/examples/e2e/internal/absence"
	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
)

const lookEvery = time.Millisecond

// neighbour is a program on a node that keeps rewriting the list of the cluster's network without
// the plugin, and measures by its own clock for how long the plugin is missing.
type neighbour struct {
	name    string
	node    *cluster.Node
	network cluster.Network
	pause   func() time.Duration // between writes
	daemon  string               // its directory in proc

	writes int
	absence.Measure
}

// neighbours returns one on each of three nodes.
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

// run writes and measures until the context ends. Each measurement covers the time since the
// previous one.
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
		last, n.Watched = now, now.Sub(begun)
		if now.After(next) {
			if err := n.write(); err != nil {
				return err
			}
			next = now.Add(n.pause())
			last = time.Now() // the duration of the write does not count
		}
	}
	return nil
}

func (n *neighbour) write() error {
	if err := n.Begin(n.waits); err != nil {
		return err
	}
	n.writes++
	return n.node.InstallNetwork(n.network)
}

// look checks whether the plugin is in the list; since is the time after the previous check or
// write.
func (n *neighbour) look(since time.Duration) error {
	text, err := os.ReadFile(n.node.Path(listFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return n.See(bytes.Contains(text, []byte(`"istio-cni"`)), since, n.waits)
}

// waits returns how long the daemon's threads have waited for a processor.
func (n *neighbour) waits() (absence.Waits, error) { return absence.ReadWaits(n.daemon) }

// expect prints the measurements and compares them with the promise. On an overloaded machine, it
// excuses no more than the longest wait of one of the daemon's threads in each gap.
func (n *neighbour) expect(t *testing.T) {
	t.Helper()
	raw, checked := n.Shares()
	t.Logf("%s, on %s: %d writes in %v; without the plugin for %.3f %% of the time (%.3f %% but for waits for a processor), at most %v at a time",
		n.name, n.node.Name, n.writes, n.Watched.Round(time.Second), 100*raw, 100*checked, n.Longest.Round(time.Millisecond))
	if err := n.Check(); err != nil {
		t.Errorf("%s: the plugin is %v", n.name, err)
	}
	if n.writes < 10 {
		t.Errorf("%s: %d writes tell too little", n.name, n.writes)
	}
}
