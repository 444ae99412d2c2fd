// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
)

// updateOwner is the owner of the plans that [Updates] goes between.
const updateOwner interception.Owner = "mesh-update"

// updatePlan is a plan at either end of an update.
type updatePlan struct {
	name string
	*interception.Plan
	// ports are those on which the proxy gets each probe of updateProbes, according to package
	// trace; 0 if the plan does not capture it.
	ports []uint16
}

// updatePlans returns both modes, with DNS and without, and one plan with other marks and more in
// most tables, so that several change at once.
func updatePlans(t testing.TB) []updatePlan {
	t.Helper()
	var plans []updatePlan
	for _, kind := range []struct {
		name string
		mode sidecar.Mode
		dns  interception.Port
		mark interception.Mark
	}{
		{"REDIRECT", sidecar.ModeRedirect, 0, 1337},
		{"REDIRECT+DNS", sidecar.ModeRedirect, 15053, 1337},
		{"TPROXY", sidecar.ModeTProxy, 0, 1337},
		{"TPROXY+DNS", sidecar.ModeTProxy, 15053, 1337},
		{"TPROXY+DNS, other marks", sidecar.ModeTProxy, 15053, 1350},
	} {
		redirect, _, err := sidecar.Istio().Parse(interception.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		redirect.Mode, redirect.DNS.Port = kind.mode, kind.dns
		if kind.mark != redirect.TProxy.Mark {
			redirect.TProxy = sidecar.TProxy{
				Mark: kind.mark, SelfMark: kind.mark + 1, Table: interception.RoutingTable(kind.mark), Priority: uint32(kind.mark),
			}
			redirect.DropInvalid = true
		}
		plan, err := sidecar.Plan(redirect, interception.Facts{IPv6: true}, updateOwner)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, updatePlan{name: kind.name, Plan: plan})
	}
	return plans
}

// usuallyAnswered is how long to wait for an answer before checking in the kernel whether one is on
// its way.
const usuallyAnswered = 20 * time.Millisecond

// updatePackets returns packets that begin connections out, in and within the pod, and that query
// resolvers: some plan captures each.
func updatePackets() []string {
	return []string{
		"tcp uid 1000 gid 1000 > 192.0.2.1:443",
		"tcp uid 1000 gid 1000 > [2001:db8::1]:443",
		"tcp in eth0 192.0.2.9:40000 > 10.244.0.2:8080",
		"tcp in eth0 [2001:db8::9]:40000 > [fd00:10:244::2]:8080",
		"tcp uid 1337 gid 1337 > 10.244.0.2:8080",
		"tcp uid 1337 gid 1337 > [fd00:10:244::2]:8080",
		"tcp uid 1000 gid 1000 > 192.0.2.53:53",
		"tcp uid 1000 gid 1000 > [2001:db8::53]:53",
		"udp uid 1000 gid 1000 > 192.0.2.53:53",
		"udp uid 1000 gid 1000 > [2001:db8::53]:53",
		"udp uid 1000 gid 1000 > 127.0.0.53:53",
	}
}

// capturedAt returns the port of the proxy's listener that gets a packet; 0 if none does.
func capturedAt(world trace.World, packet trace.Packet) (uint16, error) {
	outcome, err := trace.Trace(world, packet)
	if err != nil || outcome.Verdict != trace.Delivered || !outcome.Listener.Proxy {
		return 0, err
	}
	return uint16(outcome.Listener.Port), nil
}

// corner is a plan in place, and the dataplane that applied it, by their numbers.
type corner struct{ by, plan int }

// way is an update from one corner to another.
type way struct{ from, to corner }

// ways returns all ways in a random order. With one dataplane these are the ways between different
// plans; with two, those between any plans by the one and the other.
func ways(dataplanes, plans int, random *rand.Rand) []way {
	var all []way
	for _, from := range corners(dataplanes, plans) {
		for _, to := range corners(dataplanes, plans) {
			if dataplanes == 1 && from != to || from.by != to.by {
				all = append(all, way{from, to})
			}
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func corners(dataplanes, plans int) []corner {
	var all []corner
	for by := range dataplanes {
		for plan := range plans {
			all = append(all, corner{by, plan})
		}
	}
	return all
}
