package run

// Programs that have a cost.
const (
	APIServer  = "API server"
	Etcd       = "etcd"
	Authorizer = "authorizer"
)

// Cost is what a program used in a block.
type Cost struct {
	// CPU is all its processor time, Idle what it would have used without requests, as before the first block.
	CPU  Duration `json:"cpu"`
	Idle Duration `json:"idle"`
	RSS  int64    `json:"rssBytes"` // at the end
	// Allocated bytes and garbage collections, of programs that say so.
	Allocated int64 `json:"allocatedBytes,omitempty"`
	GCs       int64 `json:"gcs,omitempty"`
	// PeakHeap is the most bytes that the heap has needed since the program began.
	PeakHeap int64 `json:"peakHeapBytes,omitempty"`
}

// CPUProfile is how often a program was seen in a function, 100 times for each second of its processor time. Functions
// are those that were seen most.
type CPUProfile struct {
	Samples   int64            `json:"samples"`
	Functions map[string]int64 `json:"functions"`
}
