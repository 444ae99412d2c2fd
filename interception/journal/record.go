// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// version is that of the records' form. A reader refuses one that it does not know.
const version = 1

// Record is what one ADD applied, or a repair since. What it needs are the attachment and the plan; package repair believes only one with the
// pod's UID.
type Record struct {
	// Attachment is what it was applied for.
	Attachment
	// Time is when.
	Time time.Time
	// Planner is the version of the program that planned it, in any form: versions are compared for being the same only.
	Planner string
	// Namespace, Name and UID are the pod's.
	Namespace, Name, UID string
	// Netns is the path of the network namespace, as the runtime gave it (CNI_NETNS), and NetnsID what was there. Both may have been used anew
	// since: they help to find the namespace, and prove nothing.
	Netns   string
	NetnsID interception.NetnsID
	// Dataplane is the name of the one that applied it, such as "nftables", as package choice's ApplyBy says; empty where that was not said.
	Dataplane string
	// Plan is what was applied.
	Plan *interception.Plan
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
	Plan        *interception.Plan `json:"plan"`
}

type wirePod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

type wireNetns struct {
	Path   string `json:"path"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// encode writes what wireRecord reads.
func (r Record) encode() ([]byte, error) {
	if r.Plan == nil {
		return nil, errors.New("it has no plan")
	}
	return json.Marshal(wireRecord{
		Version: version, Network: r.Network, ContainerID: r.ContainerID, Interface: r.Interface, Time: r.Time, Planner: r.Planner,
		Pod: wirePod{r.Namespace, r.Name, r.UID}, Netns: wireNetns{r.Netns, r.NetnsID.Device, r.NetnsID.Inode},
		Dataplane: r.Dataplane, Plan: r.Plan,
	})
}

func decode(data []byte) (Record, error) {
	// The version comes first: other versions may have other fields.
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
	return Record{
		Attachment: Attachment{wire.Network, wire.ContainerID, wire.Interface}, Time: wire.Time, Planner: wire.Planner,
		Namespace: wire.Pod.Namespace, Name: wire.Pod.Name, UID: wire.Pod.UID,
		Netns: wire.Netns.Path, NetnsID: interception.NetnsID{Device: wire.Netns.Device, Inode: wire.Netns.Inode},
		Dataplane: wire.Dataplane, Plan: wire.Plan,
	}, nil
}

// Attachment is a container's interface in a network, as the CNI specification has it
// (https://www.cni.dev/docs/spec/#section-2-execution-protocol).
type Attachment struct {
	// Network is the name of the network configuration.
	Network string
	// ContainerID is CNI_CONTAINERID.
	ContainerID string
	// Interface is CNI_IFNAME.
	Interface string
}

// String is network, container and interface, with blanks between them.
func (a Attachment) String() string { return a.Network + " " + a.ContainerID + " " + a.Interface }

// What an error of a [Journal] is about, for errors.Is.
var (
	// ErrAttachment means that an attachment's network, id or interface is none that the CNI specification allows, or too long for a file's
	// name.
	ErrAttachment = errors.New("no attachment")
	// ErrRecord means that a record is none: it has no plan, is damaged, too large, of another version or of another attachment.
	ErrRecord = errors.New("no record")
	// ErrDirectory means that the journal's directory is not given by an absolute path, or that others than its owner may write there.
	ErrDirectory = errors.New("no journal")
)

const (
	// maxName is of the network's name and of the container's id, which is 64 in the runtimes of today: Linux takes a file's name of 255
	// bytes, and a temporary one has 21 more.
	maxName = 104
	// maxInterface is the kernel's IFNAMSIZ without the NUL.
	maxInterface = 15
	separator    = "@" // in none of the parts
	suffix       = ".json"
)

// fileName is the name of the attachment's file.
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

// AttachmentOf is the attachment whose record has the name in a journal; false for any other file.
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

// isName says whether a text is a name as the specification has it, of at most the length: a letter or digit, and behind it letters,
// digits, '_', '.' and '-'. The kernel would take more as an interface's name; no runtime uses it.
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
