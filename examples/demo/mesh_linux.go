// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// mesh is the part of the demonstration with pods in ambient mode.
type mesh struct {
	*demonstration

	feed  *podFeed
	agent *agent
	proxy *ambienttest.Proxy
	// pods are those of ambient.yaml: two to enrol, and one that opts out.
	pods []*ambientPod
	// accepted are the proxy's sockets of the connections that stay open, by their names.
	accepted map[string][]acceptedSocket
	group    string // of the rows to come
}

// ambientPod is a pod whose container has its name.
type ambientPod struct {
	podManifest

	name      string
	addresses []netip.Prefix
	netns     *sandbox.Namespace
	plan      *interception.Plan // with which the agent enrolled it; nil for a pod that opts out
}

func (m *mesh) parts() []part {
	return []part{
		{"create three pods without a sidecar, outside the mesh", m.addPods},
		{"run node-ambient, with a stand-in for ztunnel", m.startAgent},
		{"label their Kubernetes namespace " + modeLabel + "=" + modeAmbient, m.enrol},
		{"make connections of the enrolled pods", m.connectEnrolled},
		{"remove the label", m.withdraw},
		{"make connections again, and use those that are open", m.connectWithdrawn},
		{"close the connections through the proxy", m.awaitRest},
	}
}

// addPods creates the pods as the first one, and starts their applications.
func (m *mesh) addPods(ctx context.Context) (string, error) {
	manifests, err := readAmbientPods()
	if err != nil {
		return "", err
	}
	var detail string
	for i, manifest := range manifests {
		p := &ambientPod{podManifest: manifest, name: manifest.application()}
		if p.netns, p.addresses, err = m.attach(ctx, manifest); err != nil {
			return "", err
		}
		if err := p.netns.Do(func() error { return reserveClientPorts(i) }); err != nil {
			return "", err
		}
		sockets := onAllAddresses(p.listeners(), p.name, m.ipv6)
		if err := m.startContainer(ctx, p.name, containerOptions{within: p.netns.Do, listeners: sockets}); err != nil {
			return "", err
		}
		m.pods = append(m.pods, p)
		detail += fmt.Sprintf("%s/%s has %s\n", p.Namespace, p.Name, list(p.addresses))
	}
	return detail, nil
}

// reserveClientPorts gives each pod other ports for its connections. The proxy connects to an
// application with its client's address, and must not choose the port of a connection that the
// client has made itself.
func reserveClientPorts(pod int) error {
	first := 30000 + 1000*pod
	return setSysctls("net/ipv4/ip_local_port_range", fmt.Sprintf("%d %d", first, first+999))
}

// enrolled returns the pods that do not opt out, and their UIDs.
func (m *mesh) enrolled() (pods []*ambientPod, uids []string) {
	for _, p := range m.pods {
		if p.name != audit {
			pods, uids = append(pods, p), append(uids, p.UID)
		}
	}
	return pods, uids
}

// startAgent runs node-ambient between a feed and a proxy, until both know all pods.
func (m *mesh) startAgent(ctx context.Context) (string, error) {
	m.feed = newPodFeed()
	change := ambient.Change{Complete: true, Namespaces: []ambient.Namespace{m.labelled(nil)}}
	for _, p := range m.pods {
		pod := ambient.Pod{Pod: p.Pod}
		for _, address := range p.addresses {
			pod.Addresses = append(pod.Addresses, address.Addr())
		}
		change.Pods = append(change.Pods, pod)
	}
	m.feed.changes <- change
	stop, err := serveFeed(ctx, m.node.feedSocket(), m.feed)
	if err != nil {
		return "", err
	}
	m.later(stop)
	if err := m.runAgent(ctx); err != nil {
		return "", err
	}
	if m.proxy, err = m.startProxy(); err != nil {
		return "", err
	}
	m.later(m.proxy.Close)
	_, err = m.feed.await(ctx, "the proxy knows all pods", func() bool { return m.feed.complete })
	return "", err
}

func (m *mesh) runAgent(ctx context.Context) error {
	settings, err := json.Marshal(ambientSettings())
	if err != nil {
		return err
	}
	log, err := m.openLog("node-ambient")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(m.node.proxySocket()), 0o755); err != nil {
		return err
	}
	if m.agent, err = startAgent(m.node.agentCommand(ctx, string(settings), log), m.feed); err != nil {
		return err
	}
	m.later(m.agent.stop)
	return nil
}

// startProxy starts the stand-in, which tells the feed when it knows all pods.
func (m *mesh) startProxy() (*ambienttest.Proxy, error) {
	file, err := m.openLog("stand-in-proxy")
	if err != nil {
		return nil, err
	}
	log, wiring := slog.New(slog.NewJSONHandler(file, nil)), m.wiring()
	return ambienttest.StartProxy(ambienttest.ProxyOptions{
		Socket: m.node.proxySocket(), Numbers: wiring.numbers, Resolvers: wiring.resolvers,
		Tunnels: func(address netip.Addr) bool { return slices.Contains(wiring.tunnelled, address) },
		Observe: func(e ambienttest.Event) {
			log.Info(string(e.Kind), "pod", e.Workload.UID, "error", e.Err)
			if e.Kind == ambienttest.Complete {
				m.feed.note(func() { m.feed.complete = true })
			}
		},
	})
}

// labelled returns the pods' Kubernetes namespace with labels.
func (m *mesh) labelled(labels map[string]string) ambient.Namespace {
	return ambient.Namespace{Name: m.pods[0].Namespace, Labels: labels}
}

// enrol labels the namespace, after it has opened connections that live on.
func (m *mesh) enrol(ctx context.Context) (string, error) {
	if err := m.makePlans(); err != nil {
		return "", err
	}
	if err := m.useBefore(); err != nil {
		return "", err
	}
	m.feed.changes <- ambient.Change{Namespaces: []ambient.Namespace{m.labelled(map[string]string{modeLabel: modeAmbient})}}
	_, uids := m.enrolled()
	took, err := m.feed.await(ctx, "the pods are enrolled", m.feed.haveStatus(ambient.StatusEnabled, uids...))
	return fmt.Sprintf("%s and %s are enrolled after %s; %s opts out by a label of its own", orders, stock, duration(took), audit), err
}

// useBefore uses the connections from before the enrolment, and opens them the first time.
func (m *mesh) useBefore() error {
	for _, s := range m.scenes() {
		p := s.before()
		got, err := m.connect(p)
		if err == nil && got.failure != "" {
			err = fmt.Errorf("%s (%s): %s", p, p.destination, got)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// withdraw removes the label. The connections through the proxy are still open.
func (m *mesh) withdraw(ctx context.Context) (string, error) {
	m.feed.changes <- ambient.Change{Namespaces: []ambient.Namespace{m.labelled(nil)}}
	_, uids := m.enrolled()
	took, err := m.feed.await(ctx, "the pods drain", m.feed.drain(uids...))
	return fmt.Sprintf("nothing new is captured after %s; the rules stay while the proxy has connections", duration(took)), err
}

// awaitRest ends the last connections through the proxy, waits until nothing is left of the
// enrolment, and stops node-ambient.
func (m *mesh) awaitRest(ctx context.Context) (string, error) {
	for _, s := range m.scenes() {
		p := s.captured("stock")
		if _, err := m.containers[p.from].order(order{Connection: p.connection, Close: true}); err != nil {
			return "", err
		}
	}
	_, uids := m.enrolled()
	took, err := m.feed.await(ctx, "the pods are withdrawn", m.feed.haveStatus(ambient.NoStatus, uids...))
	if err != nil {
		return "", err
	}
	if err := m.awaitForgotten(ctx); err != nil {
		return "", err
	}
	if err := m.agent.stop(); err != nil {
		return "", err
	}
	if err := m.useBefore(); err != nil {
		return "", err
	}
	detail := fmt.Sprintf("no rule is left after %s; the connections from before the enrolment are still open", duration(took))
	return detail, m.nothingLeft(ctx)
}

// awaitForgotten waits until node-ambient has no record of a pod: it removes that after the status.
func (m *mesh) awaitForgotten(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restoredWithin)
	defer cancel()
	records := journal.Journal{Directory: m.node.ambientDir()}
	for again := time.Tick(time.Millisecond); ; {
		recorded, err := records.Attachments()
		if err != nil || len(recorded) == 0 {
			return err
		}
		select {
		case <-again:
		case <-ctx.Done():
			return fmt.Errorf("node-ambient still has records of %d pods that are withdrawn after %s", len(recorded), restoredWithin)
		}
	}
}
