// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"slices"
	"strconv"
	"strings"
)

// Network is what a container runtime makes of one file of a CNI configuration directory.
type Network struct {
	// Name is the network's name. libcni 1.3 appends to the plugins of a list those of the directory of this name.
	Name string
	// CNIVersion is the version of the specification that the runtime speaks to the plugins: the highest of "cniVersion" and "cniVersions"
	// that libcni 1.3 knows. It is empty if the document names none.
	CNIVersion string
	// Types are the types of the plugins that stand in the document, in order. A list may have none.
	Types []string
	// Single reports that the document is a single configuration.
	Single bool
	// OnlyInlined reports "loadOnlyInlinedPlugins": the directory of the network's name is not read. It holds for single configurations.
	OnlyInlined bool
}

// LoadNetwork says what a runtime (libcni 1.3) makes of a document: of a list if list is true, which is for files named .conflist, else of
// a single configuration. The plugins of the network's directory are not asked about; a list that has none inlined is no error
// therefore. The error is the reason why no runtime loads the document.
func LoadNetwork(doc []byte, list bool) (Network, error) {
	if list {
		return loadList(doc)
	}
	return loadSingle(doc)
}

// DropIns reports whether libcni 1.3 appends the plugins of the directory that is named after the network: for a list that does not forbid it,
// and whose name is one by the CNI specification. Any other name leads to no directory, least of all one outside of the configuration's.
func (n Network) DropIns() bool { return !n.Single && !n.OnlyInlined && isNetworkName(n.Name) }

// newest is the highest of a list's versions that libcni 1.3 knows.
func newest(own string, versions []string) string {
	known := slices.DeleteFunc(append([]string{own}, versions...), func(v string) bool {
		return v == "" || compareVersions(v, "1.1.0") > 0
	})
	if len(known) == 0 {
		return own
	}
	return slices.MaxFunc(known, compareVersions)
}

// compareVersions compares two versions, each up to three integers with dots between them. What is no integer counts as zero.
func compareVersions(a, b string) int {
	x, y := parseVersion(a), parseVersion(b)
	return slices.Compare(x[:], y[:])
}

func parseVersion(v string) (numbers [3]int) {
	for i, part := range strings.SplitN(v, ".", len(numbers)) {
		numbers[i], _ = strconv.Atoi(part) // checked where it matters
	}
	return numbers
}

// AtLeast reports whether the network's version is the given one or later. A version that is none is earlier than any.
func (n Network) AtLeast(version string) bool {
	return isVersion(n.CNIVersion) && compareVersions(n.CNIVersion, version) >= 0
}
