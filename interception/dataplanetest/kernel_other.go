// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// Namespace skips the test.
func (Kernel) Namespace(t testing.TB) *interception.Netns { return notHere[*interception.Netns](t) }

// Dump skips the test.
func (Kernel) Dump(t testing.TB, _ *interception.Netns) string { return notHere[string](t) }

// Occupy skips the test.
func (Kernel) Occupy(t testing.TB, _ *interception.Netns, _ *interception.Plan) { notHere[any](t) }

func (Kernel) edits(Case) []edit { return nil }

func notHere[T any](t testing.TB) (nothing T) {
	t.Helper()
	t.Skipf("a kernel's dataplane is tested on Linux: %v", unsupported())
	return nothing
}

// network has no values here: openNetwork fails.
type network struct{}

func openNetwork(context.Context, string, PodOptions) (*network, error) { return nil, unsupported() }

func (*network) path() string                                           { return "" }
func (*network) file() *os.File                                         { return nil }
func (*network) do(func() error) error                                  { return unsupported() }
func (*network) addAddress(context.Context, string, netip.Prefix) error { return unsupported() }
func (*network) awaitAddress(context.Context, netip.Addr) error         { return unsupported() }
func (*network) settle(context.Context) error                           { return unsupported() }
func (*network) close() error                                           { return unsupported() }
func (*network) send(context.Context, Probe, time.Duration) (Observation, error) {
	return Observation{}, unsupported()
}

func (*network) inject(trace.Packet) (netip.AddrPort, error) { return netip.AddrPort{}, unsupported() }

func (*network) keep(context.Context, Probe, time.Duration) (*Connection, error) {
	return nil, unsupported()
}

func pending(end, []byte) (int, error) { return 0, unsupported() }

func unsupported() error {
	return fmt.Errorf("network namespaces on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
