// SPDX-License-Identifier: Apache-2.0

package installer

// ClaimState says in a word whose the claim on the node is: "held" by this daemon, "superseded" by a newer one, "free" when that one has
// left, "missing" or "unreadable". It looks at the disk each time, and is safe beside the parts.
func (i *Installer) ClaimState() string {
	current, err := i.claims.load() // which changes nothing of them
	switch {
	case isMissing(err):
		return "missing"
	case err != nil:
		return "unreadable"
	case current.Session.ID == i.claims.own.ID:
		return "held"
	case current.Session.ID == "":
		return "free"
	}
	return "superseded"
}

// Keeps says whether the claim on the node is this daemon's, as ClaimState finds it.
func (i *Installer) Keeps() bool {
	current, err := i.claims.load()
	return err == nil && current.Session.ID == i.claims.own.ID
}
