// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"slices"
	"strconv"
	"strings"
)

// Network is what a container runtime makes of one file of a CNI configuration directory.
type Network struct {
	// Name is the network's name. libcni 1.3 appends the plugins of the directory of this name.
	Name string
	// CNIVersion is the version of the specification that the runtime uses with the plugins: the
	// highest of "cniVersion" and "cniVersions" that libcni 1.3 knows. It is empty if the document
	// has no version.
	CNIVersion string
	// Types are the types of the document's plugins, in order. A list may have no plugins.
	Types []string
	// Single reports that the document is a single configuration.
	Single bool
	// OnlyInlined reports "loadOnlyInlinedPlugins": the runtime does not read the directory of the
	// network's name. It is true for single configurations.
	OnlyInlined bool
}

// LoadNetwork returns what a runtime (libcni 1.3) makes of a document: of a list, as in files named
// .conflist, or else of a single configuration. It does not read the network's drop-in directory,
// so a list without plugins of its own is not an error. The error is the reason why no runtime
// loads the document.
func LoadNetwork(doc []byte, list bool) (Network, error) {
	if list {
		return loadList(doc)
	}
	return loadSingle(doc)
}

// DropIns reports whether libcni 1.3 appends the plugins of the directory named after the network:
// it does for a list that does not forbid it and has a valid network name (CNI specification). An
// invalid name leads to no directory, in particular to none outside of the configuration directory.
func (n Network) DropIns() bool { return !n.Single && !n.OnlyInlined && isNetworkName(n.Name) }

// newest returns the highest of a list's versions that libcni 1.3 knows.
func newest(own string, versions []string) string {
	known := slices.DeleteFunc(append([]string{own}, versions...), func(v string) bool {
		return v == "" || compareVersions(v, "1.1.0") > 0
	})
	if len(known) == 0 {
		return own
	}
	return slices.MaxFunc(known, compareVersions)
}

// compareVersions compares two versions, each up to three integers separated by dots. A part that
// is not an integer counts as zero.
func compareVersions(a, b string) int {
	x, y := parseVersion(a), parseVersion(b)
	return slices.Compare(x[:], y[:])
}

func parseVersion(v string) (numbers [3]int) {
	for i, part := range strings.SplitN(v, ".", len(numbers)) {
		numbers[i], _ = strconv.Atoi(part) // isVersion checks it
	}
	return numbers
}

// AtLeast reports whether CNIVersion is the given one or later. An invalid one is the earliest.
func (n Network) AtLeast(version string) bool {
	return isVersion(n.CNIVersion) && compareVersions(n.CNIVersion, version) >= 0
}
