// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// socketLines lists the TCP sockets of a namespace as ss(8) does, by their local ports.
func socketLines(t *testing.T, namespace *interception.Netns, options string) map[string][]string {
	t.Helper()
	lines := map[string][]string{}
	for line := range strings.Lines(sandboxtest.Run(t, namespace.File(), "", "ss", "-Hnt"+options)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			t.Fatalf("ss says %q", line)
		}
		port := fields[3][strings.LastIndex(fields[3], ":")+1:]
		lines[port] = append(lines[port], line)
	}
	return lines
}

// TestSocketsAreMarked looks at the proxy's sockets from outside: each has its mark, and no socket
// of the pod's own has.
func TestSocketsAreMarked(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	server, _ := agent(t, socket)
	start(t, ProxyOptions{Socket: socket})
	pod, namespace := newPod(t)
	setPod(t, server, "a", namespace)
	capture(t, namespace)
	older(t, pod)
	numbers := ambient.IstioNumbers()
	mark := fmt.Sprintf("fwmark:%#x", numbers.ProxyMark.Value)
	listening := socketLines(t, namespace, "le")
	for _, port := range []interception.Port{numbers.OutboundPort, numbers.InboundPort, numbers.TunnelPort} {
		of := listening[fmt.Sprint(port)]
		if len(of) == 0 || slices.ContainsFunc(of, func(line string) bool { return !strings.Contains(line, mark) }) {
			t.Errorf("the listeners at %d are not all marked with %s:\n%s", port, mark, of)
		}
	}
	if of := listening["8080"]; len(of) == 0 || strings.Contains(of[0], "fwmark") {
		t.Errorf("the application's listener: %s", of)
	}
	accepted, onward, own := 0, 0, 0
	for port, of := range socketLines(t, namespace, "e") {
		for _, line := range of {
			switch marked := strings.Contains(line, mark); {
			case port == fmt.Sprint(numbers.OutboundPort) && marked:
				accepted++
			case marked:
				onward++
			case port != fmt.Sprint(numbers.OutboundPort):
				own++
			}
		}
	}
	if accepted != 1 || onward != 1 || own != 1 {
		t.Errorf("of the connection, the proxy has accepted %d and opened %d with its mark, and the pod has %d, want one each", accepted, onward, own)
	}
}
