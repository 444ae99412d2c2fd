// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"slices"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
)

// Proxy is a stand-in for a node's proxy, and knows what it has taken.
type Proxy struct {
	*ambienttest.NodeProxy

	mu    sync.Mutex
	took  []ambienttest.Taken
	fails []error // of its own connections
}

// application is the port of the application in a pod.
const application = 8080

// StartProxy runs a node's proxy in the pod, with Istio's ports, to the end of the test or until
// Stop. What comes to its port of tunnels goes to port 8080.
func (p *Place) StartProxy(t testing.TB) *Proxy {
	t.Helper()
	proxy := &Proxy{}
	var err error
	proxy.NodeProxy, err = ambienttest.StartNodeProxy(ambienttest.NodeProxyOptions{
		Netns: p.Netns, Numbers: ambient.IstioNodeNumbers(), TunnelsTo: application, Observe: proxy.observe,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	return proxy
}

func (p *Proxy) observe(taken ambienttest.Taken, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.fails = append(p.fails, err)
		return
	}
	p.took = append(p.took, taken)
}

// Stop ends the proxy with its connections.
func (p *Proxy) Stop() { _ = p.Close() } // which returns nil

// Takings returns the connections that were taken since the last call.
func (p *Proxy) Takings() []ambienttest.Taken {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := p.took
	p.took = nil
	return took
}

// Failures returns why connections of the proxy have failed.
func (p *Proxy) Failures() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.fails)
}
