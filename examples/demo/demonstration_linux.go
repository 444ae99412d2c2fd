// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

type demonstration struct {
	environment
	progress
	node node
	pod  podManifest
	info sandbox.Info
	// ipv6 is true if the kernel supports IPv6.
	ipv6 bool

	api    *httptest.Server
	daemon *daemon
	// original is the primary CNI configuration before the daemon started; installed has the
	// plugin's entry.
	original, installed []byte

	runtime containerRuntime
	// attached are the pods that have a network, in the order of their creation.
	attached []podSandbox
	netns    *sandbox.Namespace
	scene    scene
	plan     *interception.Plan // nil when the pod isn't captured

	containers map[string]*container
	// unplayable explains why no process here can run as the proxy's user; "" if one can.
	unplayable string
	table      table
	reports    string // of the traces
	// closers undo what was started, last first.
	closers []func() error
}

// demonstrate runs the demonstration and returns the exit code.
func demonstrate(ctx context.Context, env environment, progress progress, pod podManifest, info sandbox.Info, node node) int {
	_, err := os.Stat("/proc/sys/net/ipv6")
	d := &demonstration{environment: env, progress: progress, node: node, pod: pod, info: info, ipv6: err == nil}
	start := time.Now()
	progress.heading("Inside a sandbox (" + situation(info) + ")")
	if info.SingleID {
		progress.detail("this machine has no second user for the proxy: " + info.Reason)
	}
	err = errors.Join(d.run(ctx), d.close())
	switch {
	case ctx.Err() != nil:
		return exitFailure // the outer process reports it
	case err != nil:
		fmt.Fprintf(env.stderr, "\ndemo: %v\n", err)
		return exitFailure
	}
	progress.heading(fmt.Sprintf("✓ Everything was as expected, in %s.", duration(time.Since(start))))
	return exitOK
}

type part struct {
	name string
	do   func(context.Context) (detail string, err error)
}

func (d *demonstration) run(ctx context.Context) error {
	mesh := &mesh{demonstration: d, accepted: map[string][]acceptedSocket{}}
	if err := d.steps(ctx, append([]part{
		{"make a node with CNI's bridge as its primary network", d.makeNode},
		{"start an API server that knows pod " + d.pod.Namespace + "/" + d.pod.Name, d.startAPIServer},
		{"run install-cni until it is ready", d.startDaemon},
		{"create the pod's network through libcni: loopback, bridge, istio-cni", d.addPod},
		{"plan what should be in the pod's network namespace", d.makePlan},
		{"start the pod's application and proxy, and the world beyond the node", d.startContainers},
		{"make connections of the pod with a sidecar", d.makeConnections},
	}, mesh.parts()...)...); err != nil {
		return err
	}
	d.heading("Connections")
	d.table.write(d.stdout)
	d.heading("The node's configuration")
	err := d.steps(ctx,
		part{"overwrite it with what it was before install-cni", d.overwriteConfig},
		part{"delete it, and write what it was before install-cni", d.deleteConfig},
		part{"delete the pods' networks through libcni", d.deletePods},
		part{"stop install-cni: an upgrade takes nothing away", d.stopDaemon},
		part{"run install-cni uninstall", d.uninstall},
	)
	return errors.Join(d.judge(), err)
}

// steps runs the parts in order until one fails.
func (d *demonstration) steps(ctx context.Context, parts ...part) error {
	for _, p := range parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := d.step(p.name, func() (string, error) { return p.do(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// judge lists the connections that the kernel treated in another way than expected.
func (d *demonstration) judge() error {
	fmt.Fprintf(d.stdout, "\n  %s\n", d.table.summary())
	var errs []error
	for _, r := range d.table.disagreements() {
		errs = append(errs, fmt.Errorf("%s (%s): expected %s, by %s; the kernel did: %s",
			r.probe, r.probe.destination, r.want, r.because(), r.got))
	}
	return errors.Join(errs...)
}

// later makes close call f.
func (d *demonstration) later(f func() error) { d.closers = append(d.closers, f) }

// close stops what is still running. It continues after a failure.
func (d *demonstration) close() error {
	var errs []error
	for _, f := range slices.Backward(d.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// openLog opens a log that is closed at the end of the demonstration.
func (d *demonstration) openLog(name string) (*os.File, error) {
	file, err := d.node.log(name)
	if err != nil {
		return nil, fmt.Errorf("open a log: %w", err)
	}
	d.later(file.Close)
	return file, nil
}

func (d *demonstration) startAPIServer(context.Context) (string, error) {
	pods, err := readAmbientPods()
	if err != nil {
		return "", err
	}
	token := rand.Text()
	d.api = httptest.NewTLSServer(podHandler(token, append(pods, d.pod)...))
	d.later(func() error {
		d.api.Close()
		return nil
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d.api.Certificate().Raw})
	return "", errors.Join(d.node.writeSecret("token", []byte(token)), d.node.writeSecret("ca.crt", ca))
}
