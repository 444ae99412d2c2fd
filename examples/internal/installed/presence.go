// SPDX-License-Identifier: Apache-2.0

package installed

// Presence is a line about the object.
type Presence struct {
	// Installed says whether the object is there, as the API server said last. Nil is a line about something else.
	Installed *bool `json:"installed,omitempty"`
}
