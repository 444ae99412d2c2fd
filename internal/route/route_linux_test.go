// SPDX-License-Identifier: Apache-2.0

package route

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/kernel"
)

func gatewayPlan(t *testing.T) *interception.Plan {
	t.Helper()
	p, err := interception.Build("mesh-test", func(b *interception.Builder) {
		b.Route(interception.Route{
			ID: "a.route", Destination: netip.MustParsePrefix("192.0.2.0/24"), Device: "lo", Gateway: netip.MustParseAddr("198.51.100.1"),
			Why: "a route by a gateway",
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRefusalIsExplained checks that an error has the object, the errno and the explanation.
func TestRefusalIsExplained(t *testing.T) {
	t.Parallel()
	c, err := newSocket(t).Prepare(gatewayPlan(t), Owner{Name: "mesh-test", Protocol: 200}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Do(t.Context())
	var refused *interception.ApplyError
	if !errors.As(err, &refused) || refused.At != "a.route" || !errors.Is(err, unix.ENETUNREACH) || errors.Is(err, kernel.ErrNoAnswer) {
		t.Errorf("got %v, want ENETUNREACH about the route", err)
	}
	if !strings.Contains(err.Error(), "Nexthop has invalid gateway") {
		t.Errorf("got %v, want the kernel's explanation", err)
	}
}
