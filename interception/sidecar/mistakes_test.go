// SPDX-License-Identifier: Apache-2.0

package sidecar_test

import (
	"errors"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// TestBadWordsOfOthers has values that other meshes passed to a shell, skipped or misread. They are
// refused with key, value and reason. TestWhatOthersGotWrong in package trace follows the packets.
func TestBadWordsOfOthers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ key, value string }{
		"a command after a port":            {"excludeOutboundPorts", "80;reboot"},
		"a line after a network":            {"excludeOutboundIPRanges", "10.0.0.0/8\n-A OUTPUT -j ACCEPT"},
		"a line before a network":           {"includeOutboundIPRanges", "\n10.0.0.0/8 -j ACCEPT"},
		"an option for an interface":        {"excludeInterfaces", "eth0 -j ACCEPT"},
		"no port in a list is valid":        {"excludeInboundPorts", "http,0,65536,-1"},
		"the last port of a list is broken": {"includeInboundPorts", "80,443,8o80"},
		"a network without an end":          {"excludeOutboundIPRanges", "10.0.0.0/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := "traffic.sidecar.istio.io/" + test.key
			_, _, err := sidecar.Istio().Parse(interception.Pod{Annotations: map[string]string{key: test.value}})
			var bad *interception.ParseError
			if !errors.As(err, &bad) || bad.Source.Key != key || bad.Source.Value != test.value {
				t.Errorf("got %v, want a ParseError about %s", err, key)
			}
		})
	}
}
