// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestManyConnections opens thousands of idle connections to the daemon's health and metrics ports.
// The daemon keeps a few of them at a time and closes the others. It stays ready, has memory left,
// and captures pods.
func TestManyConnections(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	const (
		each   = 2000
		most   = 32 // of each port at a time
		others = 16 // temporary descriptors, of probes and plugins
	)
	daemon, node := s.Daemon(s.Bridge), &soaked{Node: s.Bridge}
	before, _ := node.measure("install-cni")
	probe := "http://" + net.JoinHostPort(daemon.Status.PodIP, "8000") + "/readyz"
	var all []net.Conn
	defer func() {
		for _, connection := range all {
			_ = connection.Close()
		}
	}()
	for _, port := range []string{"8000", "15014"} {
		address := net.JoinHostPort(daemon.Status.PodIP, port)
		for number := range each {
			connection, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", address)
			if err != nil {
				t.Fatalf("connection %d to %s: %v", number+1, address, err)
			}
			all = append(all, connection)
			if number%200 != 0 {
				continue
			}
			if err := ready(t.Context(), probe); err != nil {
				t.Errorf("with %d connections: %v", len(all), err)
			}
			if now, _ := node.measure("install-cni"); now.pid != before.pid || now.descriptors > before.descriptors+2*most+others {
				t.Errorf("with %d connections the daemon is %+v; it was %+v", len(all), now, before)
			}
		}
		for _, connection := range all[len(all)-each : len(all)-most] {
			expectClosed(t, connection)
		}
	}
	if memory, err := node.Memory(before.pid); err != nil || memory.Enough() != nil {
		t.Errorf("the memory of the daemon's container: %v, %v", err, memory.Enough())
	}
	server := s.Deploy(scenario.Workload{Name: "server", Injected: true, Node: s.Bridge.Name})
	s.Expect(s.Deploy(scenario.Workload{Name: "client"}), server, 8080, "inbound server")
	if now := s.Daemon(s.Bridge); now.UID != daemon.UID || now.Status.ContainerStatuses[0].RestartCount != daemon.Status.ContainerStatuses[0].RestartCount {
		t.Errorf("%s was started again, or replaced by %s", daemon.Name, now.Name)
	}
}

func expectClosed(t *testing.T, connection net.Conn) {
	t.Helper()
	err := connection.SetReadDeadline(time.Now().Add(time.Minute))
	if err == nil {
		_, err = connection.Read(make([]byte, 1))
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v isn't closed: %v", connection.LocalAddr(), err)
	}
}
