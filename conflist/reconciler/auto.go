// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/conflist"
)

// choose chooses the mode, and records the reason.
func (d *decision) choose() {
	d.owns = d.want.Mode != Splice
	switch d.want.Mode {
	case "":
		d.plan.Mode, d.plan.Reason = d.unasked()
		d.owns = d.plan.Mode != Splice
		return
	case Splice, Owned, DropIn, Standalone:
		d.plan.Mode, d.plan.Reason = d.want.Mode, "it is asked for"
		return
	case Auto:
	}
	against := map[Mode]string{DropIn: d.againstDropIn(), Owned: d.againstOwned()}
	for _, p := range d.claim.places {
		if mode := p.Mode.orSplice(); against[mode] == "" && mode != Standalone {
			d.plan.Mode, d.plan.Reason = mode, "it was chosen before, and still fits"
			return
		}
	}
	switch {
	case against[DropIn] == "":
		d.plan.Mode, d.plan.Reason = DropIn, d.want.Runtime+" reads the directory that is named after the network"
	case against[Owned] == "":
		d.plan.Mode, d.plan.Reason = Owned, fmt.Sprintf("%s sorts first, and no other program will write it; no drop-in, because %s",
			d.want.ownFile(Owned), against[DropIn])
	default:
		d.plan.Mode, d.plan.Reason = Splice, fmt.Sprintf("no drop-in, because %s; no list of our own, because %s", against[DropIn], against[Owned])
	}
}

// unasked returns the mode if the caller asks for none: a splice, unless the primary configuration
// is a symbolic link. The target of a link is written only if the caller asks for that. While there
// is no primary, the mode stays.
func (d *decision) unasked() (Mode, string) {
	name, err := d.target(d.others)
	if err != nil {
		for _, p := range d.claim.places {
			if p.Mode == Owned || p.Mode == DropIn {
				return p.Mode, "it was chosen before"
			}
		}
	}
	if err != nil || !d.dir.isLink(name) {
		return Splice, "no other is asked for"
	}
	against := d.againstDropIn()
	if against == "" {
		return DropIn, fmt.Sprintf("%s is a symbolic link, and %s reads the directory that is named after the network", name, d.want.Runtime)
	}
	d.ownBeside(name)
	return Owned, fmt.Sprintf("%s is a symbolic link; what it leads to is written only with mode splice; no drop-in, because %s", name, against)
}

// ownBeside checks the list of our own that the reconciler, and not the caller, has chosen because
// the primary configuration is a link. It refuses a list that a runtime would never load. A lesser
// doubt becomes a note, because the other modes would write through the link, or would be ignored
// by the runtime.
func (d *decision) ownBeside(link string) {
	own := d.want.ownFile(Owned)
	if first := d.earlier(own); first == link || d.outranked(own) != nil {
		d.plan.Err = refused("%s is a symbolic link, and %s sorts before our own %s, so that a runtime never takes ours: choose mode splice, "+
			"which writes what the link leads to, or mode owned with a name that sorts first", link, first, own)
		return
	}
	if doubt := d.doubtOwned(); doubt != "" {
		d.plan.Notes = append(d.plan.Notes, "our own "+own+" may not last or not be used: "+doubt)
	}
}

// againstDropIn returns the reason why a runtime would not read a drop-in, or nothing.
func (d *decision) againstDropIn() string {
	switch known, reads := readsDropIns(d.want.Runtime); {
	case !known:
		return "the runtime isn't known to read it"
	case !reads:
		return d.want.Runtime + " doesn't read it"
	}
	name, err := d.target(d.others)
	if err != nil {
		return err.Error()
	}
	doc, err := d.document(name)
	if err != nil {
		return err.Error()
	}
	_, reason := d.dropInNetwork(name, doc)
	return reason
}

// doubtOwned returns the reason why a list of our own may not be used, or may not last, or nothing.
func (d *decision) doubtOwned() string {
	if d.want.ByName {
		return "the runtime takes its network by name, and not the first file"
	}
	for _, name := range d.dir.names() {
		if isBackup(name) {
			return name + " shows that Cilium renames the files of others"
		}
	}
	return ""
}

// againstOwned returns the reason not to choose a list of our own among other modes, or nothing.
func (d *decision) againstOwned() string {
	if doubt := d.doubtOwned(); doubt != "" {
		return doubt
	}
	own := d.want.ownFile(Owned)
	if err := d.mayBeOurs(own); err != nil {
		return err.Error()
	}
	if err := d.outranked(own); err != nil {
		return err.Error()
	}
	if _, err := d.source(own); err != nil {
		return err.Error()
	}
	return ""
}

// readsDropIns reports whether a container runtime, as Kubernetes names it, has libcni 1.3 or
// later, and whether that is known. containerd has it since 2.1.0, and CRI-O since 1.34.0, by their
// go.mod files.
func readsDropIns(runtime string) (known, reads bool) {
	name, version, major, minor := parseRuntime(runtime)
	switch {
	case !version:
		return false, false
	case name == "containerd":
		return true, major > 2 || major == 2 && minor >= 1
	case name == "cri-o":
		reads = major > 1 || major == 1 && minor >= 34
		return reads, reads // 1.33 may or may not
	}
	return false, false
}

// parseRuntime parses "containerd://2.1.4".
func parseRuntime(runtime string) (name string, hasVersion bool, major, minor int) {
	name, version, _ := strings.Cut(runtime, "://")
	first, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	second, _, _ := strings.Cut(rest, ".")
	major, errMajor := strconv.Atoi(first)
	minor, errMinor := strconv.Atoi(second)
	return name, errMajor == nil && errMinor == nil, major, minor
}

// status returns whether a runtime asks the plugins of a list for their status: since CNI 1.1 it
// does, if the list has that version.
func (d *decision) status(list []byte) Status {
	network, err := conflist.LoadNetwork(list, true)
	if err != nil {
		return Status{Why: err.Error()}
	}
	if !network.AtLeast("1.1.0") {
		return Status{Why: fmt.Sprintf("the list's cniVersion is %s, and runtimes ask from 1.1.0 on; it is the network plugin's to raise",
			cmp.Or(network.CNIVersion, "0.1.0"))}
	}
	if name, known, major, _ := parseRuntime(d.want.Runtime); known && name == "containerd" && major < 2 {
		return Status{Why: d.want.Runtime + " doesn't ask; containerd 2 does"}
	}
	return Status{Asked: true, Why: "the list's cniVersion is " + network.CNIVersion + "; runtimes with CNI 1.1 ask"}
}
