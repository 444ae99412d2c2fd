// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
)

// hostReport is all that ambient mode has in the host's network namespace, wherever pods are
// captured.
type hostReport struct {
	// Namespace is the identity of the network namespace.
	Namespace string `json:"namespace"`
	// Holds has the links, addresses, sysctls, routes, policy rules, sets and rules, in the form of
	// plans: one for each form of capture that has something. Observed objects need not be a valid
	// plan.
	Holds []*interception.Plan `json:"holds"`
	// Members are the addresses in each live set, with the UIDs of their pods. A member that another
	// program has added has none.
	Members map[interception.SetName]map[netip.Addr]string `json:"members"`
	// Deviations are objects that no plan has, such as another program's route in a table of the
	// mesh.
	Deviations []hostDeviation `json:"deviations"`
}

// hostDeviation is an [interception.Deviation].
type hostDeviation struct {
	At      string `json:"at"`
	Want    string `json:"want,omitempty"`
	Got     string `json:"got,omitempty"`
	Foreign bool   `json:"foreign,omitempty"`
}

// ambientHost is the command "ambient status --host". It looks at the kernel itself, so it also
// shows what an agent that no longer runs has left.
func ambientHost(ctx context.Context, to io.Writer, format, proc string) error {
	report, err := lookAtHost(ctx, proc)
	if err != nil {
		return fmt.Errorf("look for what ambient mode has in the host's network namespace: %w", err)
	}
	if format == formatJSON {
		err = printJSON(to, report)
	} else {
		err = printHost(to, report)
	}
	if err == nil && len(report.Deviations) > 0 {
		err = errNotRight
	}
	return err
}

// lookAtHost reads what each dataplane has in the network namespace of the host, whose process 1 is
// in the proc file system.
func lookAtHost(ctx context.Context, proc string) (report hostReport, err error) {
	candidates, err := standard.Candidates(nftables.Options{}, iptables.Options{})
	if err != nil {
		return report, err
	}
	dataplane, err := choice.New(candidates...)
	if err != nil {
		return report, err
	}
	host, err := interception.HostNetns(interception.NetnsOptions{ProcRoot: proc})
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	report = hostReport{
		Namespace: host.String(), Holds: []*interception.Plan{}, Members: map[interception.SetName]map[netip.Addr]string{},
		Deviations: []hostDeviation{},
	}
	for _, owner := range ambientconf.Owners() {
		state, err := dataplane.Observe(ctx, host, owner)
		if err != nil {
			return report, err
		}
		report.add(owner, state)
	}
	return report, nil
}

// add adds what an owner has.
func (report *hostReport) add(owner interception.Owner, state interception.State) {
	maps.Copy(report.Members, state.Owners)
	var odd []interception.Object
	for _, d := range state.Deviations {
		if d.Object != nil {
			odd = append(odd, d.Object)
		}
		if !isWire(d.Object) {
			report.Deviations = append(report.Deviations, hostDeviation{d.At, d.Want, d.Got, d.Foreign})
		}
	}
	if state.Owner, state.Objects = owner, append(odd, state.Objects...); len(state.Objects) > 0 {
		report.Holds = append(report.Holds, state.Plan())
	}
}

// isWire reports whether an object is one end of a wire to the proxy. The other end is in the
// proxy's namespace, which this command does not look for: only the agent can tell whether a wire
// is as planned.
func isWire(o interception.Object) bool {
	link, is := o.(interception.Link)
	return is && link.Veth != nil && link.Veth.Peer == ""
}

func printHost(to io.Writer, report hostReport) error {
	fmt.Fprintln(to, "host:   "+report.Namespace)
	for _, plan := range report.Holds {
		_, objects, _ := strings.Cut(plan.String(), "\n") // the first line has the owner
		fmt.Fprintln(to, "owner:  "+string(plan.Owner))
		fmt.Fprint(to, "\n"+objects)
	}
	if len(report.Holds) == 0 {
		fmt.Fprintln(to, "\nnothing of ambient mode is there")
	}
	for _, name := range slices.Sorted(maps.Keys(report.Members)) {
		fmt.Fprintf(to, "\nmembers of %s:\n", name)
		table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
		members := report.Members[name]
		for _, address := range slices.SortedFunc(maps.Keys(members), netip.Addr.Compare) {
			fmt.Fprintf(table, "  %s\t%s\n", address, cmp.Or(members[address], "of another program"))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	for _, d := range report.Deviations {
		whose := "no plan has this"
		if d.Foreign {
			whose = "another program's"
		}
		fmt.Fprintf(to, "\n%s: %s: %s\n", d.At, whose, cmp.Or(d.Got, "nothing"))
		if d.Want != "" {
			fmt.Fprintf(to, "  planned: %s\n", d.Want)
		}
	}
	return nil
}
