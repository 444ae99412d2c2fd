// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/meshcni/meshcni/internal/testing/sandbox"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/product"
	"github.com/meshcni/meshcni/examples/e2e/internal/programs"
)

// Suite is shared by all scenarios of a run.
type Suite struct {
	// Cluster has two nodes: a bridge connects the pods of the first, point-to-point links those of
	// the second.
	Cluster *cluster.Cluster
	// Bridge and PointToPoint are these nodes.
	Bridge, PointToPoint *cluster.Node

	installation installation

	images, chart string
	keep, only    bool
	start         time.Time
}

// Main runs the scenarios of a package on a new cluster, with the product installed, and returns
// the exit code. It sets suite before they begin.
func Main(m *testing.M, suite **Suite) int {
	cluster.Main()
	s := &Suite{start: time.Now()}
	flag.StringVar(&s.images, "images", "../../bin/e2e", "the `directory` that prepare has written images to")
	flag.StringVar(&s.chart, "chart", "../charts/meshcni", "the `directory` of the chart to install")
	flag.BoolVar(&s.keep, "keep", false, "leave the cluster up after the scenarios, until interrupted")
	flag.BoolVar(&s.only, "cluster-only", false, "bring the cluster up, without the product, and run no scenario")
	flag.Parse()
	code, err := s.run(m, suite)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// run enters its own namespaces, and runs the scenarios in them.
func (s *Suite) run(m *testing.M, suite **Suite) (code int, err error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("the end-to-end tests need root, for control groups and overlays; run: sudo -E make e2e")
	}
	info, err := sandbox.Enter(context.Background())
	if err != nil || !info.Inside {
		return info.ExitCode, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	directory, lock, err := s.newDirectory()
	if err != nil {
		return 0, err
	}
	defer func() { _ = lock.Close() }()
	defer func() { err = errors.Join(err, s.end(directory, code != 0 || err != nil)) }()
	if err := s.bringUp(ctx, directory); err != nil {
		return 0, err
	}
	*suite = s
	return s.scenarios(ctx, m)
}

// scenarios installs the product, and runs the scenarios.
func (s *Suite) scenarios(ctx context.Context, m *testing.M) (code int, err error) {
	if s.only {
		s.lookAround(ctx)
		return 0, nil
	}
	if err := s.Install(ctx, Values{}); err != nil {
		return 0, err
	}
	s.progress("the product is installed")
	ended := make(chan int, 1)
	go func() { ended <- m.Run() }()
	select {
	case code = <-ended:
	case <-ctx.Done():
		return interrupted, nil
	}
	s.progress(fmt.Sprintf("the scenarios have ended with code %d", code))
	if s.keep {
		s.lookAround(ctx)
	}
	return code, nil
}

// interrupted is the exit code after Ctrl-C, as in shells.
const interrupted = 128 + int(syscall.SIGINT)

// newDirectory removes what killed runs have left, and makes a directory for this run.
func (s *Suite) newDirectory() (directory string, lock *os.File, err error) {
	removed, err := cluster.Sweep(os.TempDir())
	if err != nil {
		return "", nil, fmt.Errorf("clean up after a run that was killed: %w", err)
	}
	for _, directory := range removed {
		s.progress("removed what a killed run had left: " + directory)
	}
	return cluster.NewDirectory(os.TempDir())
}

func (s *Suite) bringUp(ctx context.Context, directory string) error {
	cache, err := programs.DefaultCache()
	if err != nil {
		return err
	}
	options := cluster.Options{Directory: directory, PauseImage: product.TestReference("workload", "e2e"), Progress: s.progress}
	options.Kubernetes, err = built(ctx, programs.Kubernetes("."), cache)
	if err != nil {
		return err
	}
	options.Kubernetes = filepath.Join(options.Kubernetes, "kubernetes")
	if options.Runtime, err = built(ctx, programs.Runtime("."), cache); err != nil {
		return err
	}
	if s.images, err = filepath.Abs(s.images); err != nil {
		return err
	}
	options.Plugins = []string{filepath.Join(s.images, "routed")}
	if s.Cluster, err = cluster.Start(ctx, options); err != nil {
		return err
	}
	if s.Bridge, err = s.Cluster.AddNode(s.Node(cluster.BridgeNetwork)); err != nil {
		return err
	}
	if s.PointToPoint, err = s.Cluster.AddNode(s.Node(cluster.PointToPointNetwork)); err != nil {
		return err
	}
	for _, node := range s.Cluster.Nodes() {
		if err := s.Cluster.AwaitReady(ctx, node, true); err != nil {
			return err
		}
	}
	s.progress("two nodes are ready")
	return nil
}

// built returns the directory of programs that prepare has built.
func built(ctx context.Context, module programs.Module, cache string) (string, error) {
	directory, found, err := module.Cached(ctx, cache)
	if err == nil && !found {
		err = fmt.Errorf("%s isn't built; run: make e2e", module.Name)
	}
	return directory, err
}

// Node returns the options of a node with a network and the tests' images.
func (s *Suite) Node(network cluster.Network) cluster.NodeOptions {
	return cluster.NodeOptions{Network: network, Images: []string{
		filepath.Join(s.images, "workload.tar"), filepath.Join(s.images, "ztunnel.tar"),
		filepath.Join(s.images, "install-cni-"+FirstVersion+".tar"), filepath.Join(s.images, "install-cni-"+SecondVersion+".tar"),
	}}
}

// end stops the cluster, and keeps its logs after a failure.
func (s *Suite) end(directory string, failed bool) error {
	var failures []error
	if s.Cluster != nil {
		failures = append(failures, s.Cluster.Stop())
	}
	if !failed {
		return errors.Join(append(failures, os.RemoveAll(directory))...)
	}
	failures = append(failures, cluster.Keep(directory))
	fmt.Fprintf(os.Stderr, "what every component said is in %s/logs\n", directory)
	return errors.Join(failures...)
}

// lookAround prints how to use the cluster, and waits until the user ends it.
func (s *Suite) lookAround(ctx context.Context) {
	fmt.Fprintf(os.Stderr, `
The cluster is up until Ctrl-C. Beside it, as root:

  the cluster's network           nsenter -t $(pgrep -f '^%[1]s %[2]s$') -n -- sh    (on %[2]s; others: %[3]v)
  a node with its files           nsenter -t $(pgrep -f '^%[1]s %[2]s$') -a -- sh    (ctr -n k8s.io, ls /etc/cni/net.d)
  kubectl, with that network      KUBECONFIG=%[4]s kubectl get pods -A
  what every component says       %[5]s

`, cluster.InitName, s.Bridge.Name, nodeNames(s.Cluster), s.Cluster.Kubeconfig(), s.Cluster.Logs())
	<-ctx.Done()
}

func nodeNames(c *cluster.Cluster) []string {
	var names []string
	for _, node := range c.Nodes() {
		names = append(names, node.Name)
	}
	return names
}

// progress logs a step with its time.
func (s *Suite) progress(message string) {
	fmt.Fprintf(os.Stderr, "%6.1f s  %s\n", time.Since(s.start).Seconds(), message)
}
