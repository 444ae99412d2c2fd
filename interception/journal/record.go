// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// version is the version of the records' form. A reader refuses any other.
const version = 1

// Record is what one ADD, or a later repair, applied. Only the attachment and the plan are
// required; package repair trusts only records with the pod's UID.
type Record struct {
	// Attachment is the attachment that the plan was applied for.
	Attachment
	// Time is the time of the ADD or repair.
	Time time.Time
	// Planner is the version of the planning program, in any form. Readers only test equality.
	Planner string
	// Namespace, Name and UID identify the pod.
	Namespace, Name, UID string
	// Netns is the path of the network namespace as the container runtime gave it (CNI_NETNS);
	// NetnsID identifies the namespace found there. Both may have been reused since: they help to
	// find the namespace and prove nothing.
	Netns   string
	NetnsID interception.NetnsID
	// Dataplane is the name of the dataplane that applied the plan, such as "nftables" (see ApplyBy
	// in package choice), or empty if it is not known.
	Dataplane string
	// Plan is the applied plan.
	Plan *interception.Plan
	// ServiceAccount and Addresses are those that the pod had when the record was written, and
	// RuntimeUID is the UID by which the node knows it: of a static pod, UID is that of its mirror.
	// They are for a program that keeps the pod right while no source tells of it. Others leave
	// them empty.
	ServiceAccount string
	Addresses      []netip.Addr
	RuntimeUID     string
	// Leaving reports that the program has begun to take the plan back, or has applied only rules that
	// capture nothing so far: what the pod lacks of it is not to be restored.
	Leaving bool
}

// wireRecord is the JSON form of a record.
type wireRecord struct {
	Version     int                `json:"version"`
	Network     string             `json:"network"`
	ContainerID string             `json:"containerID"`
	Interface   string             `json:"interface"`
	Time        time.Time          `json:"time"`
	Planner     string             `json:"planner"`
	Pod         wirePod            `json:"pod"`
	Netns       wireNetns          `json:"netns"`
	Dataplane   string             `json:"dataplane,omitempty"`
	Leaving     bool               `json:"leaving,omitempty"`
	Plan        *interception.Plan `json:"plan,omitempty"`
}

type wirePod struct {
	Namespace      string       `json:"namespace"`
	Name           string       `json:"name"`
	UID            string       `json:"uid"`
	RuntimeUID     string       `json:"runtimeUID,omitempty"`
	ServiceAccount string       `json:"serviceAccount,omitempty"`
	Addresses      []netip.Addr `json:"addresses,omitempty"`
}

type wireNetns struct {
	Path   string `json:"path"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// encode returns the record as JSON in the form of wireRecord. The plan, which is most of it, is
// added to the text of the rest: encoding/json would scan what MarshalJSON returned once more.
func (r Record) encode() ([]byte, error) {
	if r.Plan == nil {
		return nil, errors.New("it has no plan")
	}
	plan, err := r.Plan.MarshalJSON()
	if err != nil {
		return nil, err
	}
	rest, err := json.Marshal(wireRecord{
		Version: version, Network: r.Network, ContainerID: r.ContainerID, Interface: r.Interface, Time: r.Time, Planner: r.Planner,
		Pod:       wirePod{r.Namespace, r.Name, r.UID, r.RuntimeUID, r.ServiceAccount, r.Addresses},
		Netns:     wireNetns{r.Netns, r.NetnsID.Device, r.NetnsID.Inode},
		Dataplane: r.Dataplane, Leaving: r.Leaving,
	})
	return slices.Concat(bytes.TrimSuffix(rest, []byte("}")), []byte(`,"plan":`), plan, []byte("}")), err
}

func decode(data []byte) (Record, error) {
	// The version is read first: other versions may have other fields.
	var head struct{ Version int }
	if err := json.Unmarshal(data, &head); err != nil {
		return Record{}, err
	}
	if head.Version != version {
		return Record{}, fmt.Errorf("its form is version %d, and this program reads %d", head.Version, version)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var wire wireRecord
	if err := decoder.Decode(&wire); err != nil {
		return Record{}, err
	}
	if wire.Plan == nil {
		return Record{}, errors.New("it has no plan")
	}
	if slices.Contains(wire.Pod.Addresses, netip.Addr{}) {
		return Record{}, errors.New("an address of the pod is empty")
	}
	return Record{
		Attachment: Attachment{wire.Network, wire.ContainerID, wire.Interface}, Time: wire.Time, Planner: wire.Planner,
		Namespace: wire.Pod.Namespace, Name: wire.Pod.Name, UID: wire.Pod.UID,
		Netns: wire.Netns.Path, NetnsID: interception.NetnsID{Device: wire.Netns.Device, Inode: wire.Netns.Inode},
		Dataplane: wire.Dataplane, Plan: wire.Plan, Leaving: wire.Leaving,
		ServiceAccount: wire.Pod.ServiceAccount, Addresses: wire.Pod.Addresses, RuntimeUID: wire.Pod.RuntimeUID,
	}, nil
}

// Attachment is a container's interface in a network, as in the CNI specification
// (https://www.cni.dev/docs/spec/#section-2-execution-protocol).
type Attachment struct {
	// Network is the name of the network configuration.
	Network string
	// ContainerID is CNI_CONTAINERID.
	ContainerID string
	// Interface is CNI_IFNAME.
	Interface string
}

// String returns network, container and interface, separated by blanks.
func (a Attachment) String() string { return a.Network + " " + a.ContainerID + " " + a.Interface }

// The errors of a [Journal], for errors.Is.
var (
	// ErrAttachment means that the CNI specification does not allow an attachment's network, id or
	// interface, or that it is too long for a file's name.
	ErrAttachment = errors.New("no attachment")
	// ErrRecord means that a record is damaged, incomplete, too large, or not the expected one.
	ErrRecord = errors.New("no record")
	// ErrDirectory means that the journal's path is not absolute, or that users other than its
	// owner may write the directory.
	ErrDirectory = errors.New("no journal")
)

const (
	// maxName limits the network's name and the container's id, today 64 bytes. Linux allows 255
	// bytes in a file's name; a temporary one is 21 bytes longer.
	maxName = 104
	// maxInterface is IFNAMSIZ less its terminator.
	maxInterface = 15
	separator    = "@" // occurs in none of the parts
	suffix       = ".json"
)

// fileName returns the name of the attachment's file.
func (a Attachment) fileName() (string, error) {
	switch {
	case !isName(a.Network, maxName):
		return "", fmt.Errorf("%w: network %q", ErrAttachment, a.Network)
	case !isName(a.ContainerID, maxName):
		return "", fmt.Errorf("%w: container id %q", ErrAttachment, a.ContainerID)
	case !isName(a.Interface, maxInterface):
		return "", fmt.Errorf("%w: interface %q", ErrAttachment, a.Interface)
	}
	return a.Network + separator + a.ContainerID + separator + a.Interface + suffix, nil
}

// AttachmentOf returns the attachment whose record has this file name; false for other files.
func AttachmentOf(fileName string) (Attachment, bool) {
	base, isRecord := strings.CutSuffix(fileName, suffix)
	parts := strings.Split(base, separator)
	if !isRecord || len(parts) != 3 {
		return Attachment{}, false
	}
	a := Attachment{parts[0], parts[1], parts[2]}
	_, err := a.fileName()
	return a, err == nil
}

// isName reports whether a text is a name by the specification, of at most this length: a letter or
// digit, followed by letters, digits, '_', '.' and '-'. The kernel allows more in an interface's
// name, which no container runtime uses.
func isName(text string, length int) bool {
	for i, c := range []byte(text) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '_' || c == '.' || c == '-'):
		default:
			return false
		}
	}
	return text != "" && len(text) <= length
}
